#include <cstring>
#include <numeric>

#include "inputs.h"
#include "parallel/transport.h"

namespace memra::bench::parallel {
namespace {

// To nearest, ties to even.
uint16_t to_bf16(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return 0x7FC0;
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

// sum += values.
void add(std::vector<float>* sum, const std::byte* values, memra_dtype dtype) {
  for (size_t i = 0; i < sum->size(); ++i) {
    if (dtype == MEMRA_F32) {
      float value = 0;
      std::memcpy(&value, values + 4 * i, sizeof(value));
      (*sum)[i] += value;
    } else {
      uint16_t bits = 0;
      std::memcpy(&bits, values + 2 * i, sizeof(bits));
      (*sum)[i] += bf16_value(bits);
    }
  }
}

void store(const std::vector<float>& values, memra_dtype dtype, std::byte* to) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype == MEMRA_F32) {
      std::memcpy(to + 4 * i, &values[i], sizeof(float));
    } else {
      const uint16_t bits = to_bf16(values[i]);
      std::memcpy(to + 2 * i, &bits, sizeof(bits));
    }
  }
}

int64_t sum_before(const std::vector<int64_t>& counts, int index) {
  return std::accumulate(counts.begin(), counts.begin() + index, int64_t{0});
}

class HostTransport final : public Transport {
 public:
  HostTransport(Group& group, const Session& session) : group_(group), session_(session) {}

  std::string name() const override { return "host"; }

  void all_reduce(void* data, int64_t count, memra_dtype dtype, memra_stream stream) override {
    Bytes mine = download(data, static_cast<size_t>(count) * dtype_bytes(dtype), stream);
    std::vector<float> sum(static_cast<size_t>(count));
    for (const Bytes& part : group_.exchange(mine))
      add(&sum, part.data(), dtype);
    store(sum, dtype, mine.data());
    upload(data, mine, stream);
  }

  void dispatch(const RowExchange& rows, const void* x, void* received,
                memra_stream stream) override {
    const Bytes own = download(x, static_cast<size_t>(rows.plan.n_own()) * rows.row_bytes, stream);
    Bytes sent;
    for (const int32_t row : rows.plan.send_rows) {
      const std::byte* from = own.data() + static_cast<size_t>(row) * rows.row_bytes;
      sent.insert(sent.end(), from, from + rows.row_bytes);
    }
    upload(received, all_to_all(sent, rows.plan.send_counts, rows.row_bytes), stream);
  }

  void combine(const RowExchange& rows, const void* computed, void* y,
               memra_stream stream) override {
    const TokenPlan& plan = rows.plan;
    const Bytes sent =
        download(computed, static_cast<size_t>(plan.n_received()) * rows.row_bytes, stream);
    const Bytes back = all_to_all(sent, plan.receive_counts, rows.row_bytes);
    Bytes out(static_cast<size_t>(plan.n_own()) * rows.row_bytes);
    for (size_t row = 0; row < static_cast<size_t>(plan.n_own()); ++row) {
      std::vector<float> sum(static_cast<size_t>(rows.columns));
      for (int32_t i = plan.sum_offsets[row]; i < plan.sum_offsets[row + 1]; ++i) {
        const auto place = static_cast<size_t>(plan.sum_places[static_cast<size_t>(i)]);
        add(&sum, back.data() + place * rows.row_bytes, rows.dtype);
      }
      store(sum, rows.dtype, out.data() + row * rows.row_bytes);
    }
    upload(y, out, stream);
  }

 private:
  // Pageable memory: the copy has been made when the stream is idle.
  Bytes download(const void* data, size_t bytes, memra_stream stream) const {
    Bytes copy(bytes);
    if (bytes > 0) {
      check(memra_memcpy(session_.engine(), copy.data(), data, bytes, stream), "memra_memcpy");
    }
    check(memra_stream_synchronize(session_.engine(), stream), "memra_stream_synchronize");
    return copy;
  }

  void upload(void* data, const Bytes& bytes, memra_stream stream) const {
    if (bytes.empty()) return;
    check(memra_memcpy(session_.engine(), data, bytes.data(), bytes.size(), stream),
          "memra_memcpy");
    check(memra_stream_synchronize(session_.engine(), stream), "memra_stream_synchronize");
  }

  // `sent` holds counts[r] rows for rank r; returns the rows for this one, by the rank that sent
  // them. Everybody sees everything.
  Bytes all_to_all(const Bytes& sent, const std::vector<int64_t>& counts, size_t row_bytes) {
    Bytes message(counts.size() * sizeof(int64_t));
    std::memcpy(message.data(), counts.data(), message.size());
    message.insert(message.end(), sent.begin(), sent.end());
    Bytes received;
    for (const Bytes& part : group_.exchange(message)) {
      std::vector<int64_t> theirs(counts.size());
      std::memcpy(theirs.data(), part.data(), theirs.size() * sizeof(int64_t));
      const auto me = static_cast<size_t>(group_.rank());
      const std::byte* from = part.data() + theirs.size() * sizeof(int64_t) +
                              static_cast<size_t>(sum_before(theirs, group_.rank())) * row_bytes;
      received.insert(received.end(), from, from + static_cast<size_t>(theirs[me]) * row_bytes);
    }
    return received;
  }

  Group& group_;
  const Session& session_;
};

}  // namespace

std::unique_ptr<Transport> make_host_transport(Group& group, const Session& session) {
  return std::make_unique<HostTransport>(group, session);
}

}  // namespace memra::bench::parallel
