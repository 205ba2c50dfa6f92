#include "quantized.h"

namespace memra::bench {

Quantized make_quantized(const Session& session, int64_t rows, int64_t columns) {
  const size_t count = static_cast<size_t>(rows) * static_cast<size_t>(columns);
  return {session.device_memory(count), session.device_memory(count),
          session.device_memory(count / 32 * sizeof(float))};
}

void quantize(const Session& session, const Memory& x, memra_dtype dtype, int64_t rows,
              int64_t columns, const Quantized& to) {
  memra_q8_1_args args = MEMRA_Q8_1_ARGS_INIT;
  args.x_dtype = dtype;
  args.x = x.as();
  args.rows = rows;
  args.columns = columns;
  args.q = to.q.as<int8_t>();
  args.d = to.d.as<float>();
  check(memra_quantize_q8_1(session.engine(), &args, session.stream()), "memra_quantize_q8_1");
  check(memra_q8_to_lane_major(session.engine(), args.q, rows, columns,
                               to.q_lane_major.as<int8_t>(), session.stream()),
        "memra_q8_to_lane_major");
}

}  // namespace memra::bench
