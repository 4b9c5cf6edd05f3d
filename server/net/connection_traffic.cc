#include "server/net/connection_traffic.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <functional>
#include <utility>

namespace runnel {
namespace {

// A flood sends megabytes per second.
constexpr int64_t kLeast = 64 << 10;

}  // namespace

int64_t bytes_received(int socket) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  return static_cast<int64_t>(info.tcpi_bytes_received);
}

std::vector<std::string> busiest(const Received& before, const Received& now) {
  std::map<std::string, int64_t> by_peer;
  int64_t all = 0;
  for (const auto& [socket, traffic] : now) {
    const auto earlier = before.find(socket);
    const int64_t since = traffic.bytes - (earlier == before.end() ? 0 : earlier->second.bytes);
    if (since <= 0) continue;
    by_peer[traffic.peer] += since;
    all += since;
  }
  std::vector<std::pair<int64_t, std::string>> ranked;
  for (const auto& [peer, bytes] : by_peer) ranked.emplace_back(bytes, peer);
  std::ranges::sort(ranked, std::greater<>());
  std::vector<std::string> peers;
  int64_t counted = 0;
  for (const auto& [bytes, peer] : ranked) {
    if (bytes < kLeast || 10 * counted >= 9 * all) break;
    peers.push_back(peer);
    counted += bytes;
  }
  return peers;
}

void cut_off(int socket) {
  const sockaddr nowhere = {.sa_family = AF_UNSPEC, .sa_data = {}};
  if (connect(socket, &nowhere, sizeof(nowhere)) != 0) shutdown(socket, SHUT_RDWR);
}

}  // namespace runnel
