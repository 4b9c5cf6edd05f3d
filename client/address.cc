#include "client/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <strings.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/text.h"

namespace runnel {
namespace {

constexpr const char* kExpected = "; expected host:port, as in 127.0.0.1:50051";

bool is_socket_file(std::string_view address) {
  return address.starts_with("unix:") || address.starts_with("unix-abstract:");
}

// Addresses with a scheme of gRPC's are passed to gRPC unchanged.
bool has_grpc_scheme(std::string_view address) {
  constexpr std::string_view kSchemes[] = {"dns:", "ipv4:", "ipv6:"};
  return is_socket_file(address) ||
         std::ranges::any_of(kSchemes, [&](auto scheme) { return address.starts_with(scheme); });
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

// gRPC reads addresses as URIs, in which brackets are %5B and %5D. They only mark IPv6 addresses.
std::string decode_brackets(const std::string& text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    const std::string code = text.substr(i, 3);
    const bool opens = code == "%5B" || code == "%5b", closes = code == "%5D" || code == "%5d";
    decoded += opens ? '[' : closes ? ']' : text[i];
    if (opens || closes) i += 2;
  }
  return decoded;
}

// "host:port", or a host alone.
HostPort place_in(const std::string& text) {
  if (const std::optional<HostPort> place = split(text)) return *place;
  const bool bracketed = text.starts_with('[') && text.ends_with(']');
  return {bracketed ? text.substr(1, text.size() - 2) : text, "443"};
}

// The hosts and ports in "host:port" and in gRPC's "dns:[//SERVER/]host[:port]",
// "ipv4:host:port,host:port" and "ipv6:"; none for a socket file.
std::vector<HostPort> places_of(const std::string& address) {
  if (is_socket_file(address)) return {};
  std::string list = address;
  if (has_grpc_scheme(address)) {
    list = decode_brackets(address.substr(address.find(':') + 1));
    const size_t path = list.starts_with("//") ? list.find('/', 2) : std::string::npos;
    if (path != std::string::npos) list = list.substr(path + 1);
  }
  std::vector<HostPort> places;
  std::istringstream texts(list);
  for (std::string text; std::getline(texts, text, ',');) places.push_back(place_in(text));
  return places;
}

bool is_loopback_number(const std::string& host) {
  in_addr four{};
  in6_addr six{};
  // inet_aton() ignores the text after a space.
  if (host.find_first_of(" \t\n\v\f\r") != std::string::npos) return false;
  if (inet_aton(host.c_str(), &four) == 1) return ntohl(four.s_addr) >> 24 == 127;
  if (inet_pton(AF_INET6, host.c_str(), &six) != 1) return false;
  return IN6_IS_ADDR_LOOPBACK(&six) || (IN6_IS_ADDR_V4MAPPED(&six) && six.s6_addr[12] == 127);
}

bool is_localhost(const std::string& host) {
  return strcasecmp(host.c_str(), "localhost") == 0 || strcasecmp(host.c_str(), "localhost.") == 0;
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

std::optional<HostPort> host_port_of(const std::string& address) {
  const std::vector<HostPort> places = places_of(address);
  return places.size() == 1 ? std::optional(places[0]) : std::nullopt;
}

bool is_loopback(const std::string& address) {
  if (is_socket_file(address)) return true;
  const std::vector<HostPort> places = places_of(address);
  const bool asks_name_server = address.starts_with("dns://") && !address.starts_with("dns:///");
  return !places.empty() && std::ranges::all_of(places, [&](const HostPort& place) {
    return is_loopback_number(place.host) || (!asks_name_server && is_localhost(place.host));
  });
}

}  // namespace runnel
