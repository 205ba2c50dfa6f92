#include "conformance/buffer.h"

#include <cstring>

namespace memra::test {
namespace {

void copy(const Engine& engine, void* dst, const void* src, std::int64_t bytes) {
  require(memra_memcpy(engine.get(), dst, src, static_cast<std::uint64_t>(bytes), engine.stream()));
  engine.synchronize();
}

}  // namespace

// As f32, f16 and bf16 this is NaN, as a scale it is invalid: whoever reads it shows it.
Bytes Buffer::guard_bytes() {
  Bytes pattern;
  for (std::int64_t i = 0; i < kGuard; i += 4) {
    for (const int byte : {0xEE, 0xFF, 0xC0, 0x7F})
      pattern.push_back(static_cast<std::uint8_t>(byte));
  }
  return pattern;
}

::testing::AssertionResult same_bytes(const Bytes& expected, const Bytes& actual) {
  if (expected == actual) return ::testing::AssertionSuccess();
  if (expected.size() != actual.size()) {
    return ::testing::AssertionFailure()
           << actual.size() << " bytes where " << expected.size() << " are expected";
  }
  std::size_t differing = 0;
  std::size_t first = expected.size();
  for (std::size_t i = expected.size(); i-- > 0;) {
    if (expected[i] == actual[i]) continue;
    ++differing;
    first = i;
  }
  return ::testing::AssertionFailure()
         << differing << " of " << expected.size() << " bytes differ; first at " << first
         << ": expected " << int{expected[first]} << ", got " << int{actual[first]};
}

Buffer::Buffer(Engine& engine, std::int64_t bytes, std::int64_t skew)
    : engine_(&engine), bytes_(bytes) {
  const bool bands = engine.guards() == Guards::kBands;
  const std::int64_t begin = skew + (bands ? MEMRA_WORKSPACE_ALIGNMENT : 0);
  const std::int64_t total = begin + bytes + (bands ? kGuard : 0);
  require(memra_alloc(engine.get(), static_cast<std::uint64_t>(total), &allocation_));
  data_ = static_cast<std::uint8_t*>(allocation_) + begin;
  front_ = bands ? begin : 0;
  if (bands) {
    const Bytes pattern = guard_bytes();
    copy(engine, data_ - kGuard, pattern.data(), kGuard);
    copy(engine, data_ + bytes, pattern.data(), kGuard);
  }
  fill(0xFF);
}

Buffer::Buffer(Engine& engine, const Bytes& contents, std::int64_t skew)
    : Buffer(engine, static_cast<std::int64_t>(contents.size()), skew) {
  upload(contents);
}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(engine_, other.engine_);
  std::swap(allocation_, other.allocation_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(front_, other.front_);
  return *this;
}

Buffer::~Buffer() {
  if (engine_ == nullptr) return;
  EXPECT_TRUE(guards_intact());
  EXPECT_TRUE(ok(memra_free(engine_->get(), allocation_)));
}

void Buffer::fill(std::uint8_t value) const {
  if (bytes_ == 0) return;
  require(memra_memset(engine_->get(), data_, value, static_cast<std::uint64_t>(bytes_),
                       engine_->stream()));
  engine_->synchronize();
}

void Buffer::upload(const Bytes& contents, std::int64_t offset) const {
  ASSERT_LE(offset + static_cast<std::int64_t>(contents.size()), bytes_);
  if (contents.empty()) return;
  copy(*engine_, data_ + offset, contents.data(), static_cast<std::int64_t>(contents.size()));
}

Bytes Buffer::download(std::int64_t offset, std::int64_t bytes) const {
  Bytes result(static_cast<std::size_t>(bytes));
  if (bytes != 0) copy(*engine_, result.data(), data_ + offset, bytes);
  return result;
}

::testing::AssertionResult Buffer::guards_intact() const {
  if (!has_guards()) return ::testing::AssertionSuccess();
  const Bytes pattern = guard_bytes();
  Bytes front(pattern.size());
  Bytes back(pattern.size());
  // Also called by the destructor, so nothing here throws.
  const auto read = [&](Bytes& to, const void* from) {
    return memra_memcpy(engine_->get(), to.data(), from, to.size(), engine_->stream());
  };
  for (const memra_status status : {read(front, data_ - kGuard), read(back, data_ + bytes_),
                                    memra_stream_synchronize(engine_->get(), engine_->stream())}) {
    if (status != MEMRA_OK) return ok(status) << " while reading guard bands";
  }
  if (front != pattern) {
    return ::testing::AssertionFailure() << "bytes before a buffer of " << bytes_ << " written";
  }
  if (back != pattern) {
    return ::testing::AssertionFailure() << "bytes after a buffer of " << bytes_ << " written";
  }
  return ::testing::AssertionSuccess();
}

void Input::replace(Bytes contents) {
  buffer_.upload(contents);
  contents_ = std::move(contents);
}

::testing::AssertionResult Input::intact(const char* name) const {
  if (contents_.empty() || buffer_.download() == contents_) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "the input " << name << " has changed";
}

}  // namespace memra::test
