#include "client/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "base/text.h"

namespace runnel {
namespace {

constexpr const char* kExpected = "; expected host:port, as in 127.0.0.1:50051";

struct HostPort {
  std::string host, port;
};

// gRPC's schemes are passed on to it as they are.
bool has_grpc_scheme(std::string_view address) {
  constexpr std::string_view kSchemes[] = {"unix:", "unix-abstract:", "dns:", "ipv4:", "ipv6:"};
  return std::ranges::any_of(kSchemes, [&](auto scheme) { return address.starts_with(scheme); });
}

std::optional<HostPort> split(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0) return std::nullopt;
  HostPort parts = {address.substr(0, colon), address.substr(colon + 1)};
  const bool bracketed = parts.host.starts_with('[') && parts.host.ends_with(']');
  if (bracketed) parts.host = parts.host.substr(1, parts.host.size() - 2);
  if (!bracketed && parts.host.find(':') != std::string::npos) return std::nullopt;
  return parts;
}

bool is_port(const std::string& text) {
  int port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && end == text.data() + text.size() && port >= 1 && port <= 65535;
}

}  // namespace

Status check_server_address(const std::string& address) {
  const std::string found = "the server's address is " + quote(address, 200);
  for (const std::string_view scheme : {"http://", "https://", "grpc://", "grpcs://"}) {
    if (address.starts_with(scheme)) {
      const char* tls = scheme.ends_with("s://") ? ", with --tls or --tls-ca FILE" : "";
      return invalid_argument(found + "; leave out " + quote(scheme) + " and give host:port" + tls);
    }
  }
  if (has_grpc_scheme(address)) return {};
  const std::optional<HostPort> parts = split(address);
  if (!parts) {
    const bool bare_ipv6 = std::ranges::count(address, ':') > 1;
    return invalid_argument(found + (bare_ipv6 ? "; write IPv6 as [::1]:50051"
                                               : ", without a port" + std::string(kExpected)));
  }
  if (parts->host.find('/') != std::string::npos || !is_port(parts->port)) {
    return invalid_argument(found + kExpected);
  }
  return {};
}

std::string host_of(const std::string& address) {
  const std::optional<HostPort> parts = has_grpc_scheme(address) ? std::nullopt : split(address);
  return parts ? parts->host : "";
}

bool is_loopback(const std::string& address) {
  if (address.starts_with("unix:") || address.starts_with("unix-abstract:")) return true;
  const std::string host = host_of(address);
  in_addr four{};
  in6_addr six{};
  if (inet_pton(AF_INET, host.c_str(), &four) == 1) return ntohl(four.s_addr) >> 24 == 127;
  if (inet_pton(AF_INET6, host.c_str(), &six) == 1) return IN6_IS_ADDR_LOOPBACK(&six);
  return host == "localhost";
}

}  // namespace runnel
