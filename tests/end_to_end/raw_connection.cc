#include "tests/end_to_end/raw_connection.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace runnel {

namespace {

sockaddr_in address_of(uint32_t host, int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(host);
  return address;
}

}  // namespace

RawConnection::RawConnection(int port, uint32_t source)
    : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const sockaddr_in from = address_of(source, 0);
  const sockaddr_in to = address_of(INADDR_LOOPBACK, port);
  if (bind(socket_, reinterpret_cast<const sockaddr*>(&from), sizeof from) != 0 ||
      connect(socket_, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) {
    close();
  }
}

RawConnection::~RawConnection() { close(); }

bool RawConnection::send(std::string_view bytes) {
  if (!is_open()) return false;
  while (!bytes.empty()) {
    pollfd file = {socket_, POLLOUT, 0};
    if (poll(&file, 1, 1000) <= 0) return true;
    const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

std::string RawConnection::receive(size_t bytes, std::chrono::milliseconds at_most) {
  pollfd file = {socket_, POLLIN, 0};
  if (poll(&file, 1, static_cast<int>(at_most.count())) <= 0) return "";
  std::string text(bytes, '\0');
  const ssize_t got = recv(socket_, text.data(), text.size(), MSG_DONTWAIT);
  text.resize(got < 0 ? 0 : static_cast<size_t>(got));
  return text;
}

bool RawConnection::is_hung_up_on() const {
  pollfd file = {socket_, POLLRDHUP, 0};
  return poll(&file, 1, 0) > 0;
}

void RawConnection::reset() {
  const linger at_once = {.l_onoff = 1, .l_linger = 0};
  setsockopt(socket_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  close();
}

void RawConnection::close() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

namespace http2 {
namespace {

std::string big_endian(uint64_t number, int bytes) {
  std::string text;
  for (int i = bytes - 1; i >= 0; --i) text += static_cast<char>(number >> (8 * i));
  return text;
}

// A length with a prefix of 7 bits, as in RFC 7541, 5.1.
std::string length_of(size_t length) {
  if (length < 127) return std::string(1, static_cast<char>(length));
  std::string text(1, static_cast<char>(127));
  for (length -= 127; length >= 128; length /= 128) text += static_cast<char>(length % 128 + 128);
  return text + static_cast<char>(length);
}

}  // namespace

std::string frame(Type type, uint8_t flags, uint32_t stream, std::string_view payload) {
  return big_endian(payload.size(), 3) + static_cast<char>(type) + static_cast<char>(flags) +
         big_endian(stream, 4) + std::string(payload);
}

std::string setting(uint16_t id, uint32_t value) {
  return frame(Type::kSettings, 0, 0, big_endian(id, 2) + big_endian(value, 4));
}

std::string fields(const std::vector<std::pair<std::string, std::string>>& all) {
  std::string text;
  for (const auto& [name, value] : all) {
    // A literal field that is not indexed, with its name.
    text += '\x00' + length_of(name.size()) + name + length_of(value.size()) + value;
  }
  return text;
}

std::string call_head(const std::string& method) {
  return fields({{":method", "POST"},
                 {":scheme", "http"},
                 {":path", method},
                 {":authority", "localhost"},
                 {"te", "trailers"},
                 {"content-type", "application/grpc"}});
}

std::string message(std::string_view bytes) {
  return '\x00' + big_endian(bytes.size(), 4) + std::string(bytes);
}

std::string whole_call(const std::string& method, std::string_view bytes, uint32_t window) {
  return std::string(kPreface) + setting(kInitialWindow, window) +
         frame(Type::kHeaders, kEndHeaders, 1, call_head(method)) +
         frame(Type::kData, kEndStream, 1, message(bytes));
}

}  // namespace http2
}  // namespace runnel
