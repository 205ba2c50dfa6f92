#include "gguf.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <system_error>

static_assert(std::endian::native == std::endian::little, "GGUF is read as little-endian bytes");

namespace memra::bench {
namespace {

enum ValueType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

constexpr uint32_t kMaxDims = 4;
// The smallest a metadata entry and a tensor entry can be: a count in the header larger than the
// rest of the file allows is refused before anything is reserved for it.
constexpr uint64_t kMinValueBytes = 8 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 4 + 8 + 4 + 8;

[[noreturn]] void fail(const std::string& text) {
  throw GgufError("gguf: " + text);
}

std::string quote(std::string_view text) {
  return "'" + std::string(text) + "'";
}

uint64_t checked_mul(uint64_t a, uint64_t b, std::string_view what) {
  uint64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) {
    fail("the size of " + std::string(what) + " overflows 64 bits");
  }
  return result;
}

uint64_t scalar_bytes(uint32_t type) {
  switch (type) {
    case kU8:
    case kI8:
    case kBool:
      return 1;
    case kU16:
    case kI16:
      return 2;
    case kU32:
    case kI32:
    case kF32:
      return 4;
    case kU64:
    case kI64:
    case kF64:
      return 8;
    default:
      return 0;
  }
}

template <typename T>
T load(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

// Walks the file once, front to back; the only place that moves through untrusted lengths.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> file) : file_(file) {}

  uint64_t position() const { return position_; }
  uint64_t left() const { return file_.size() - position_; }

  std::span<const std::byte> take(uint64_t count, std::string_view what) {
    if (count > left()) {
      fail("the file is truncated: " + std::string(what) + " at byte " + std::to_string(position_) +
           " needs " + std::to_string(count) + " bytes, " + std::to_string(left()) + " are left");
    }
    const auto bytes = file_.subspan(position_, count);
    position_ += count;
    return bytes;
  }

  template <typename T>
  T read(std::string_view what) {
    return load<T>(take(sizeof(T), what).data());
  }

  std::string_view read_string(std::string_view what) {
    const auto length = read<uint64_t>(what);
    const auto bytes = take(length, what);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

 private:
  std::span<const std::byte> file_;
  uint64_t position_ = 0;
};

void skip_array(Cursor& cursor, std::string_view key, int depth);

// Elements of variable size are walked, since nothing else tells where the next value begins.
void skip_elements(Cursor& cursor, uint32_t type, uint64_t count, std::string_view key, int depth) {
  if (count > cursor.left()) {
    fail("the file is truncated: array " + quote(key) + " claims " + std::to_string(count) +
         " elements, " + std::to_string(cursor.left()) + " bytes are left");
  }
  for (uint64_t i = 0; i < count; ++i) {
    if (type == kString) {
      cursor.read_string("a string of an array");
    } else {
      skip_array(cursor, key, depth + 1);
    }
  }
}

void skip_array(Cursor& cursor, std::string_view key, int depth) {
  constexpr int kMaxDepth = 8;
  if (depth > kMaxDepth) fail("array " + quote(key) + " is nested deeper than 8");
  const auto type = cursor.read<uint32_t>("the element type of an array");
  const auto count = cursor.read<uint64_t>("the length of an array");
  if (const uint64_t size = scalar_bytes(type)) {
    cursor.take(checked_mul(count, size, "array " + quote(key)), "an array");
  } else if (type == kString || type == kArray) {
    skip_elements(cursor, type, count, key, depth);
  } else {
    fail("metadata " + quote(key) + " has the unknown type " + std::to_string(type));
  }
}

GgufValue read_value(Cursor& cursor, std::string_view key) {
  GgufValue value;
  value.type = cursor.read<uint32_t>("a metadata type");
  if (value.type == kString) {
    value.text = cursor.read_string("a metadata string");
    return value;
  }
  if (value.type == kArray) {
    value.is_array = true;
    value.type = cursor.read<uint32_t>("the element type of an array");
    value.count = cursor.read<uint64_t>("the length of an array");
    if (value.type == kString || value.type == kArray) {
      skip_elements(cursor, value.type, value.count, key, 1);
      return value;
    }
  }
  const uint64_t size = scalar_bytes(value.type);
  if (size == 0) {
    fail("metadata " + quote(key) + " has the unknown type " + std::to_string(value.type));
  }
  value.bytes = cursor.take(checked_mul(value.count, size, quote(key)), "a metadata value");
  return value;
}

GgufTensor read_tensor(Cursor& cursor) {
  GgufTensor tensor;
  tensor.name = cursor.read_string("a tensor name");
  tensor.n_dims = cursor.read<uint32_t>("the dimension count of a tensor");
  if (tensor.n_dims == 0 || tensor.n_dims > kMaxDims) {
    fail("tensor " + quote(tensor.name) + " has " + std::to_string(tensor.n_dims) +
         " dimensions; 1 to 4 are legal");
  }
  for (uint32_t d = 0; d < tensor.n_dims; ++d) {
    tensor.dims[d] = cursor.read<uint64_t>("a dimension of a tensor");
  }
  tensor.type = cursor.read<uint32_t>("a tensor type");
  tensor.offset = cursor.read<uint64_t>("a tensor offset");
  return tensor;
}

uint32_t read_version(Cursor& cursor) {
  const auto magic = cursor.take(4, "the magic");
  if (std::memcmp(magic.data(), "GGUF", 4) != 0) {
    fail("wrong magic: the file does not begin with 'GGUF'");
  }
  const auto version = cursor.read<uint32_t>("the version");
  if (version != 0 && (version & 0xFFFF) == 0) {
    fail("the file is big-endian; only little-endian files are read");
  }
  if (version != 2 && version != 3) {
    fail("version " + std::to_string(version) + " is not supported; 2 and 3 are");
  }
  return version;
}

}  // namespace

Gguf::Gguf(std::span<const std::byte> file) : file_(file) {
  Cursor cursor(file);
  version_ = read_version(cursor);
  const auto n_tensors = cursor.read<uint64_t>("the tensor count");
  const auto n_values = cursor.read<uint64_t>("the metadata count");
  if (n_values > cursor.left() / kMinValueBytes) {
    fail("the file is truncated: it claims " + std::to_string(n_values) + " metadata entries");
  }
  for (uint64_t i = 0; i < n_values; ++i) {
    const auto key = cursor.read_string("a metadata key");
    if (!values_.emplace(key, read_value(cursor, key)).second) {
      fail("metadata key " + quote(key) + " appears twice");
    }
  }
  if (n_tensors > cursor.left() / kMinTensorBytes) {
    fail("the file is truncated: it claims " + std::to_string(n_tensors) + " tensors");
  }
  if (find_value("general.alignment") != nullptr) {
    const auto alignment = unsigned_value("general.alignment");
    if (!alignment || !std::has_single_bit(*alignment)) {
      fail("general.alignment must be a power of two");
    }
    alignment_ = *alignment;
  }
  tensors_.reserve(n_tensors);
  for (uint64_t i = 0; i < n_tensors; ++i) {
    tensors_.push_back(read_tensor(cursor));
    const GgufTensor& tensor = tensors_.back();
    if (tensor.offset % alignment_ != 0) {
      fail("tensor " + quote(tensor.name) + " has offset " + std::to_string(tensor.offset) +
           ", no multiple of the alignment " + std::to_string(alignment_));
    }
    if (!tensor_index_.emplace(tensor.name, tensors_.size() - 1).second) {
      fail("tensor " + quote(tensor.name) + " appears twice");
    }
  }
  const uint64_t padding = (alignment_ - cursor.position() % alignment_) % alignment_;
  data_offset_ = cursor.position() + (padding < cursor.left() ? padding : cursor.left());
}

const GgufValue* Gguf::find_value(std::string_view key) const {
  const auto it = values_.find(key);
  return it == values_.end() ? nullptr : &it->second;
}

const GgufTensor* Gguf::find_tensor(std::string_view name) const {
  const auto it = tensor_index_.find(name);
  return it == tensor_index_.end() ? nullptr : &tensors_[it->second];
}

std::optional<uint64_t> Gguf::unsigned_value(std::string_view key) const {
  const GgufValue* value = find_value(key);
  if (value == nullptr || value->is_array) return std::nullopt;
  const std::byte* bytes = value->bytes.data();
  int64_t number = 0;
  switch (value->type) {
    case kU8:
      return load<uint8_t>(bytes);
    case kU16:
      return load<uint16_t>(bytes);
    case kU32:
      return load<uint32_t>(bytes);
    case kU64:
      return load<uint64_t>(bytes);
    case kI8:
      if (const auto small = load<uint8_t>(bytes); small < 0x80) return small;
      return std::nullopt;
    case kI16:
      number = load<int16_t>(bytes);
      break;
    case kI32:
      number = load<int32_t>(bytes);
      break;
    case kI64:
      number = load<int64_t>(bytes);
      break;
    default:
      return std::nullopt;
  }
  if (number < 0) return std::nullopt;
  return static_cast<uint64_t>(number);
}

std::optional<std::string_view> Gguf::string_value(std::string_view key) const {
  const GgufValue* value = find_value(key);
  if (value == nullptr || value->is_array || value->type != kString) return std::nullopt;
  return value->text;
}

std::optional<float> Gguf::float_element(std::string_view key, uint64_t index) const {
  const GgufValue* value = find_value(key);
  if (value == nullptr || value->type != kF32) return std::nullopt;
  if (!value->is_array) return load<float>(value->bytes.data());
  if (index >= value->count) return std::nullopt;
  return load<float>(value->bytes.data() + index * sizeof(float));
}

std::span<const std::byte> Gguf::tensor_bytes(const GgufTensor& tensor) const {
  const std::string what = "tensor " + quote(tensor.name);
  uint64_t block_values = 1;
  uint64_t block_bytes = sizeof(float);
  if (tensor.type == kGgmlNvfp4) {
    block_values = 64;
    block_bytes = 36;
  } else if (tensor.type != kGgmlF32) {
    fail(what + " has ggml type " + std::to_string(tensor.type) +
         "; 0 (F32) or 40 (NVFP4) can be read");
  }
  if (tensor.dims[0] % block_values != 0) {
    fail(what + " has rows of " + std::to_string(tensor.dims[0]) +
         " values, no multiple of the block of " + std::to_string(block_values));
  }
  uint64_t size = checked_mul(tensor.dims[0] / block_values, block_bytes, what);
  for (uint32_t d = 1; d < kMaxDims; ++d)
    size = checked_mul(size, tensor.dims[d], what);
  const uint64_t available = file_.size() - data_offset_;
  if (tensor.offset > available || size > available - tensor.offset) {
    fail("the file is truncated: " + what + " needs " + std::to_string(size) + " bytes at offset " +
         std::to_string(tensor.offset) + " of a data section of " + std::to_string(available));
  }
  return file_.subspan(data_offset_ + tensor.offset, size);
}

MappedFile::MappedFile(const std::string& path) {
  const auto fail_errno = [&path](const char* what) {
    const int error = errno;
    fail("cannot " + std::string(what) + " " + quote(path) + ": " +
         std::system_category().message(error));
  };
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail_errno("open");
  struct stat info = {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    fail(quote(path) + " is not a regular file");
  }
  size_ = static_cast<size_t>(info.st_size);
  if (size_ > 0) {
    void* data = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) {
      const int error = errno;
      ::close(fd);
      errno = error;
      fail_errno("map");
    }
    data_ = static_cast<const std::byte*>(data);
  }
  ::close(fd);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace memra::bench
