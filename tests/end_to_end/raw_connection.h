// A socket to the server's port, for bytes that no correct client sends.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace runnel {

class RawConnection {
 public:
  // Connects to 127.0.0.1:`port`. `source` is the address to connect from, in 127.0.0.0/8. The
  // server may keep out an address that has sent a flood, with all clients that use it.
  explicit RawConnection(int port, uint32_t source = 0x7f000001);
  ~RawConnection();
  RawConnection(RawConnection&& other) noexcept : socket_(std::exchange(other.socket_, -1)) {}
  RawConnection& operator=(RawConnection&&) = delete;

  bool is_open() const { return socket_ >= 0; }
  // Sends all bytes. False after a second without progress, or if the peer has closed.
  bool send(std::string_view bytes);
  // Returns up to `bytes` bytes. Waits `at_most` for them; then, or after the end, returns "".
  std::string receive(size_t bytes, std::chrono::milliseconds at_most);
  // Whether the other side has closed the connection.
  bool is_hung_up_on() const;
  // Closes the connection with a reset.
  void reset();
  void close();

 private:
  int socket_ = -1;
};

// The parts of HTTP/2 that a bad client needs.
namespace http2 {

inline constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

enum class Type : uint8_t {
  kData = 0,
  kHeaders = 1,
  kReset = 3,
  kSettings = 4,
  kPing = 6,
  kWindow = 8,
  kContinuation = 9,
};
inline constexpr uint8_t kEndStream = 1;
inline constexpr uint8_t kEndHeaders = 4;

std::string frame(Type type, uint8_t flags, uint32_t stream, std::string_view payload);
// A frame with one setting.
std::string setting(uint16_t id, uint32_t value);
inline constexpr uint16_t kInitialWindow = 4;

// Fields without compression.
std::string fields(const std::vector<std::pair<std::string, std::string>>& all);
// The headers of a gRPC call.
std::string call_head(const std::string& method);
// A gRPC message with its length prefix.
std::string message(std::string_view bytes);

// The preface and settings, then a call with one message.
std::string whole_call(const std::string& method, std::string_view bytes, uint32_t window = 65535);

}  // namespace http2
}  // namespace runnel
