#include "base/store_url.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>

#include "base/text.h"

namespace runnel {
namespace {

constexpr std::string_view kDirectory = "dir:";
constexpr std::string_view kSocket = "unix:";
constexpr size_t kMostSocketPath = 107;  // of sockaddr_un
constexpr int kMostDatabase = 65535;
constexpr int kMostPort = 65535;

Status wrong_url(std::string_view url) {
  return invalid_argument(
      "storage.url is " + quote(url) +
      "; it must be dir:PATH; redis://[USER@]HOST[:PORT][/DATABASE], rediss:// for TLS, or "
      "unix:PATH for a socket of Redis; or memory, which ends with the process");
}

// A whole number from `least` to `most`.
std::optional<int> number_in(std::string_view text, int least, int most) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  if (number < least || number > most) return {};
  return number;
}

// True if every character may be in the name of a host or user.
bool is_name(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return std::isgraph(static_cast<unsigned char>(c)) != 0 &&
           std::string_view("/?#@\"\\").find(c) == std::string_view::npos;
  });
}

// "HOST", "HOST:PORT", "[::1]:PORT".
bool read_host(std::string_view text, StoreUrl& url) {
  url.port = "6379";
  size_t end = text.find(':');
  if (text.starts_with('[')) {
    const size_t bracket = text.find(']');
    if (bracket == text.npos) return false;
    url.host = text.substr(1, bracket - 1);
    end = bracket + 1;
  } else {
    url.host = text.substr(0, end);
  }
  if (!is_name(url.host)) return false;
  if (end >= text.size()) return true;
  url.port = text.substr(end + 1);
  return text[end] == ':' && number_in(url.port, 1, kMostPort).has_value();
}

// `text` follows "redis://" in the URL.
Result<StoreUrl> parse_redis(std::string_view whole, std::string_view text, bool tls) {
  StoreUrl url = {.kind = StoreKind::kRedis, .tls = tls};
  if (const size_t at = text.rfind('@'); at != text.npos) {
    url.user = text.substr(0, at);
    if (url.user.find(':') != url.user.npos) {
      return invalid_argument(
          "storage.url has a password; write it to a file, and name this in storage.password_file");
    }
    if (!is_name(url.user)) return wrong_url(whole);
    text.remove_prefix(at + 1);
  }
  if (const size_t slash = text.find('/'); slash != text.npos) {
    const std::string_view digits = text.substr(slash + 1);
    const auto database = number_in(digits.empty() ? "0" : digits, 0, kMostDatabase);
    if (!database) return wrong_url(whole);
    url.database = *database;
    text = text.substr(0, slash);
  }
  if (!read_host(text, url)) return wrong_url(whole);
  return url;
}

}  // namespace

Result<StoreUrl> parse_store_url(std::string_view url) {
  if (url == "memory") return StoreUrl{};
  for (const auto& [scheme, tls] : {std::pair("redis://", false), std::pair("rediss://", true)}) {
    if (url.starts_with(scheme)) {
      return parse_redis(url, url.substr(std::string_view(scheme).size()), tls);
    }
  }
  if (url.starts_with(kDirectory) && url.size() > kDirectory.size()) {
    return StoreUrl{.kind = StoreKind::kDirectory,
                    .path = std::string(url.substr(kDirectory.size()))};
  }
  const bool is_socket = url.starts_with(kSocket) && url.size() > kSocket.size() &&
                         url.size() <= kSocket.size() + kMostSocketPath;
  if (!is_socket) return wrong_url(url);
  return StoreUrl{.kind = StoreKind::kRedis, .path = std::string(url.substr(kSocket.size()))};
}

}  // namespace runnel
