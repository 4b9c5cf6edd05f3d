#include "tests/server/http/http_client.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <chrono>

#include "tests/base/eventually.h"

namespace runnel {
namespace {

constexpr int kPatienceMs = std::chrono::milliseconds(kPatience).count();

sockaddr_in ipv4(const char* host, int port) {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(static_cast<uint16_t>(port));
  inet_pton(AF_INET, host, &at.sin_addr);
  return at;
}

}  // namespace

HttpClient::HttpClient(const std::string& address, const char* from)
    : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const sockaddr_in here = ipv4(from, 0);
  bind(socket_.get(), reinterpret_cast<const sockaddr*>(&here), sizeof(here));
  const sockaddr_in there = ipv4("127.0.0.1", std::stoi(address.substr(address.rfind(':') + 1)));
  EXPECT_EQ(connect(socket_.get(), reinterpret_cast<const sockaddr*>(&there), sizeof(there)), 0);
}

void HttpClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0) return;  // the server has hung up
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

void HttpClient::end_sending() { shutdown(socket_.get(), SHUT_WR); }

void HttpClient::reset() {
  const linger at_once = {.l_onoff = 1, .l_linger = 0};
  setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  socket_ = {};
}

bool HttpClient::has_answer(int within_ms) {
  pollfd file = {socket_.get(), POLLIN, 0};
  return !received_.empty() || poll(&file, 1, within_ms) > 0;
}

bool HttpClient::receive() {
  pollfd file = {socket_.get(), POLLIN, 0};
  if (poll(&file, 1, kPatienceMs) <= 0) return false;
  std::array<char, 65536> bytes{};
  const ssize_t got = recv(socket_.get(), bytes.data(), bytes.size(), 0);
  ended_ = got <= 0;
  if (got > 0) received_.append(bytes.data(), static_cast<size_t>(got));
  return got > 0;
}

bool HttpClient::read_until(std::string_view mark, std::string& out) {
  size_t at = 0;
  while ((at = received_.find(mark)) == std::string::npos) {
    if (!receive()) return false;
  }
  out = received_.substr(0, at + mark.size());
  received_.erase(0, out.size());
  return true;
}

std::string HttpClient::read(size_t bytes) {
  while (received_.size() < bytes && receive()) {
  }
  const std::string text = received_.substr(0, bytes);
  received_.erase(0, text.size());
  return text;
}

std::string HttpClient::read_all() {
  while (receive()) {
  }
  EXPECT_TRUE(ended_) << "the server keeps the connection";
  return std::exchange(received_, "");
}

HttpResponse HttpClient::response(bool has_body) {
  HttpResponse response;
  if (!read_until("\r\n\r\n", response.head)) return {};
  response.status = std::stoi(response.head.substr(9, 3));
  if (!has_body || response.status < 200 || response.status == 204) return response;
  const std::string mark = "Content-Length: ";
  if (const size_t at = response.head.find(mark); at != std::string::npos) {
    response.body = read(std::stoul(response.head.substr(at + mark.size())));
    return response;
  }
  if (response.head.find("Transfer-Encoding: chunked") == std::string::npos) {
    response.body = read_all();
    return response;
  }
  for (std::string size; read_until("\r\n", size);) {
    const size_t bytes = std::stoul(size, nullptr, 16);
    const std::string chunk = read(bytes + 2);
    if (bytes == 0) return response;
    response.body += chunk.substr(0, bytes);
  }
  return {};
}

}  // namespace runnel
