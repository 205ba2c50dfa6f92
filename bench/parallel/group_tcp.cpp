#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>

#include "parallel/groups.h"
#include "session.h"

namespace memra::bench::parallel {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

constexpr Milliseconds kRetry{20};

std::string reason() {
  return std::strerror(errno);  // NOLINT(concurrency-mt-unsafe): its texts are constant
}

class Socket {
 public:
  Socket() = default;
  explicit Socket(int handle) : handle_(handle) {}
  Socket(Socket&& other) noexcept : handle_(std::exchange(other.handle_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Socket() {
    if (handle_ >= 0) close(handle_);
  }

  int get() const { return handle_; }
  bool is_open() const { return handle_ >= 0; }

  void prepare(Milliseconds timeout) const {
    const int on = 1;
    setsockopt(handle_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
    const auto rest = std::chrono::duration_cast<std::chrono::microseconds>(timeout - seconds);
    timeval limit{};
    limit.tv_sec = seconds.count();
    limit.tv_usec = rest.count();
    setsockopt(handle_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(handle_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  }

  void send_all(const void* data, size_t bytes) const {
    const auto* from = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t sent = send(handle_, from, bytes, MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent <= 0) throw Failure("a rank has left, or does not read: " + reason());
      from += sent;
      bytes -= static_cast<size_t>(sent);
    }
  }

  void receive_all(void* data, size_t bytes) const {
    auto* to = static_cast<char*>(data);
    while (bytes > 0) {
      const ssize_t received = recv(handle_, to, bytes, 0);
      if (received < 0 && errno == EINTR) continue;
      if (received == 0) throw Failure("a rank has left");
      if (received < 0) throw Failure("nothing comes from a rank: " + reason());
      to += received;
      bytes -= static_cast<size_t>(received);
    }
  }

  void send_message(const Bytes& bytes) const {
    const uint64_t size = bytes.size();
    send_all(&size, sizeof(size));
    send_all(bytes.data(), bytes.size());
  }

  Bytes receive_message() const {
    uint64_t size = 0;
    receive_all(&size, sizeof(size));
    Bytes bytes(size);
    receive_all(bytes.data(), bytes.size());
    return bytes;
  }

 private:
  int handle_ = -1;
};

struct AddressDeleter {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, AddressDeleter>;

Addresses resolve(const Endpoint& endpoint) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(endpoint.address.c_str(), endpoint.port.c_str(), &hints, &list);
  if (error != 0) throw Failure("'" + endpoint.address + "': " + gai_strerror(error));
  return Addresses(list);
}

Socket listen_on(const Endpoint& endpoint) {
  const Addresses addresses = resolve(endpoint);
  std::string text;
  for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
    Socket socket(::socket(a->ai_family, a->ai_socktype, a->ai_protocol));
    const int on = 1;
    setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (socket.is_open() && bind(socket.get(), a->ai_addr, a->ai_addrlen) == 0 &&
        listen(socket.get(), SOMAXCONN) == 0) {
      return socket;
    }
    text = reason();
  }
  throw Failure("cannot listen on " + endpoint.address + ":" + endpoint.port + ": " + text);
}

Socket connect_to(const Endpoint& endpoint, Clock::time_point end) {
  const Addresses addresses = resolve(endpoint);
  for (;;) {
    for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
      Socket socket(::socket(a->ai_family, a->ai_socktype, a->ai_protocol));
      if (socket.is_open() && connect(socket.get(), a->ai_addr, a->ai_addrlen) == 0) return socket;
    }
    if (Clock::now() > end) {
      throw Failure("rank 0 does not answer on " + endpoint.address + ":" + endpoint.port + ": " +
                    reason());
    }
    std::this_thread::sleep_for(kRetry);
  }
}

Socket accept_from(const Socket& listener, Clock::time_point end) {
  for (;;) {
    const auto left = std::chrono::duration_cast<Milliseconds>(end - Clock::now());
    pollfd waiting = {listener.get(), POLLIN, 0};
    if (left.count() <= 0) throw Failure("not all ranks came in time");
    if (poll(&waiting, 1, static_cast<int>(left.count())) <= 0) continue;
    Socket socket(accept(listener.get(), nullptr, nullptr));
    if (socket.is_open()) return socket;
  }
}

// What a rank says first. Who else connects is sent away.
struct Greeting {
  char magic[8] = {'m', 'e', 'm', 'r', 'a', ' ', 'p', '1'};
  int32_t rank = 0;
  int32_t size = 0;
};

class TcpGroup final : public Group {
 public:
  TcpGroup(const Endpoint& endpoint, const Place& place, Milliseconds timeout) : Group(place) {
    const Clock::time_point end = Clock::now() + timeout;
    if (rank() > 0) {
      root_ = connect_to(endpoint, end);
      root_.prepare(timeout);
      Greeting greeting;
      greeting.rank = rank();
      greeting.size = size();
      root_.send_all(&greeting, sizeof(greeting));
    } else {
      welcome(listen_on(endpoint), timeout, end);
    }
  }

  std::vector<Bytes> exchange(const Bytes& mine) override {
    std::vector<Bytes> all(static_cast<size_t>(size()));
    if (rank() > 0) {
      root_.send_message(mine);
      for (Bytes& part : all)
        part = root_.receive_message();
      return all;
    }
    all[0] = mine;
    for (size_t other = 1; other < all.size(); ++other)
      all[other] = others_[other].receive_message();
    for (size_t other = 1; other < all.size(); ++other) {
      for (const Bytes& part : all)
        others_[other].send_message(part);
    }
    return all;
  }

 private:
  void welcome(const Socket& listener, Milliseconds timeout, Clock::time_point end) {
    others_.resize(static_cast<size_t>(size()));
    for (int missing = size() - 1; missing > 0;) {
      Socket socket = accept_from(listener, end);
      socket.prepare(timeout);
      Greeting greeting;
      try {
        socket.receive_all(&greeting, sizeof(greeting));
      } catch (const Failure&) {
        continue;
      }
      if (std::memcmp(greeting.magic, Greeting().magic, sizeof(greeting.magic)) != 0) continue;
      if (greeting.size != size()) throw Failure("the ranks do not agree on how many they are");
      if (greeting.rank <= 0 || greeting.rank >= size() ||
          others_[static_cast<size_t>(greeting.rank)].is_open()) {
        throw Failure("rank " + std::to_string(greeting.rank) + " came twice, or is none");
      }
      others_[static_cast<size_t>(greeting.rank)] = std::move(socket);
      --missing;
    }
  }

  Socket root_;                 // of the others
  std::vector<Socket> others_;  // of rank 0, by rank
};

}  // namespace

bool read_endpoint(const std::string& text, Endpoint* endpoint) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return false;
  std::string address = text.substr(0, colon);
  if (address.front() == '[' && address.back() == ']')
    address = address.substr(1, address.size() - 2);
  const std::string port = text.substr(colon + 1);
  const bool is_number = !port.empty() && port.size() <= 5 &&
                         port.find_first_not_of("0123456789") == std::string::npos;
  if (address.empty() || !is_number) return false;
  const int number = std::stoi(port);
  if (number < 1 || number > 65535) return false;
  *endpoint = {address, port};
  return true;
}

std::unique_ptr<Group> join_tcp(const Endpoint& endpoint, const Place& place,
                                std::chrono::milliseconds timeout) {
  return std::make_unique<TcpGroup>(endpoint, place, timeout);
}

}  // namespace memra::bench::parallel
