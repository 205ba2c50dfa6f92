#include "parallel/transport.h"

#include <utility>

namespace memra::bench::parallel {

RowExchange::RowExchange(const Session& session, TokenPlan token_plan, int64_t row_columns,
                         memra_dtype type)
    : plan(std::move(token_plan)),
      columns(row_columns),
      dtype(type),
      row_bytes(static_cast<size_t>(row_columns) * dtype_bytes(type)),
      send_rows(session.upload(plan.send_rows)),
      sum_offsets(session.upload(plan.sum_offsets)),
      sum_places(session.upload(plan.sum_places)),
      staging(session.device_memory(plan.send_rows.size() * row_bytes)) {}

}  // namespace memra::bench::parallel
