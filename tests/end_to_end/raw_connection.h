// A socket to the server's port, for bytes that no well-made client would send.
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
  // Connects to 127.0.0.1:`port`. `source` is the address to connect from, in 127.0.0.0/8: the
  // server may keep out an address that has sent a flood, with everybody who uses it.
  explicit RawConnection(int port, uint32_t source = 0x7f000001);
  ~RawConnection();
  RawConnection(RawConnection&& other) noexcept : socket_(std::exchange(other.socket_, -1)) {}
  RawConnection& operator=(RawConnection&&) = delete;

  bool is_open() const { return socket_ >= 0; }
  // Sends what the other side takes, and gives up after a second; false when it has hung up.
  bool send(std::string_view bytes);
  // What comes within `at_most`, up to so many bytes; "" when nothing does, or after the end.
  std::string receive(size_t bytes, std::chrono::milliseconds at_most);
  // Whether the other side has ended the connection.
  bool is_hung_up_on() const;
  // Closes with a reset instead of an orderly end.
  void reset();
  void close();

 private:
  int socket_ = -1;
};

// HTTP/2, as far as a bad client needs it.
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
// One setting, in a frame of its own.
std::string setting(uint16_t id, uint32_t value);
inline constexpr uint16_t kInitialWindow = 4;

// Fields without compression.
std::string fields(const std::vector<std::pair<std::string, std::string>>& all);
// The head of a gRPC call.
std::string call_head(const std::string& method);
// A gRPC message with its prefix.
std::string message(std::string_view bytes);

// Preface and settings, then one call with one message.
std::string whole_call(const std::string& method, std::string_view bytes, uint32_t window = 65535);

}  // namespace http2
}  // namespace runnel
