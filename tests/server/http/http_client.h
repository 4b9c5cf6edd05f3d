// A client of HTTP/1.1 that sends any bytes.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "server/net/listen_socket.h"

namespace runnel {

struct HttpResponse {
  int status = 0;  // 0: no answer, or not a whole one
  std::string head;
  std::string body;
};

class HttpClient {
 public:
  // `from`: the local address to connect from.
  explicit HttpClient(const std::string& address, const char* from = "127.0.0.1");

  void send(std::string_view bytes);
  // Closes the sending side, but can still read.
  void end_sending();
  // Closes the connection with a reset.
  void reset();

  // The next answer. Its body has a length or chunks; after HEAD there is no body.
  HttpResponse response(bool has_body = true);
  // The next `bytes` bytes, or fewer if the server closes.
  std::string read(size_t bytes);
  // Everything until the server closes. The test fails if it does not close within 20 s.
  std::string read_all();
  // True if the server closes without sending more.
  bool is_closed() { return read_all().empty() && ended_; }
  // True if something has arrived, or arrives within this many ms.
  bool has_answer(int within_ms);

 private:
  bool receive();
  bool read_until(std::string_view mark, std::string& out);

  Descriptor socket_;
  std::string received_;  // received, but not read by the test yet
  bool ended_ = false;
};

}  // namespace runnel
