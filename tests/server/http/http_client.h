// A client of HTTP/1.1 that sends any bytes.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "server/net/listen_socket.h"

namespace runnel {

struct HttpResponse {
  int status = 0;  // 0: there was none, or not a whole one
  std::string head;
  std::string body;
};

class HttpClient {
 public:
  // `from`: the address of this machine to come from.
  explicit HttpClient(const std::string& address, const char* from = "127.0.0.1");

  void send(std::string_view bytes);
  // Sends no more, but reads on.
  void end_sending();
  // Goes with a reset.
  void reset();

  // The next answer, its body by its length or in chunks; without one, after HEAD.
  HttpResponse response(bool has_body = true);
  // The next bytes, as many; fewer at the end.
  std::string read(size_t bytes);
  // All that comes until the server closes; more bytes than that count as failure after 20 s.
  std::string read_all();
  // True when the server closes without another byte.
  bool is_closed() { return read_all().empty() && ended_; }
  // True when something has come, or does so in as many ms.
  bool has_answer(int within_ms);

 private:
  bool receive();
  bool read_until(std::string_view mark, std::string& out);

  Descriptor socket_;
  std::string received_;  // and not read yet
  bool ended_ = false;
};

}  // namespace runnel
