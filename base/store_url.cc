#include "base/store_url.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>

#include "base/text.h"

namespace runnel {
namespace {

constexpr size_t kMostSocketPath = 107;  // of sockaddr_un
constexpr int kMostDatabase = 65535;
constexpr int kMostPort = 65535;

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

// "[USER@]HOST[:PORT][/DATABASE]".
bool read_redis(std::string_view text, StoreUrl& url) {
  if (const size_t at = text.rfind('@'); at != text.npos) {
    url.user = text.substr(0, at);
    if (!is_name(url.user) || url.user.find(':') != url.user.npos) return false;
    text.remove_prefix(at + 1);
  }
  if (const size_t slash = text.find('/'); slash != text.npos) {
    const std::string_view digits = text.substr(slash + 1);
    const auto database = number_in(digits.empty() ? "0" : digits, 0, kMostDatabase);
    if (!database) return false;
    url.database = *database;
    text = text.substr(0, slash);
  }
  return read_host(text, url);
}

bool read_url(std::string_view text, StoreUrl& url) {
  const auto take = [&](std::string_view prefix) {
    if (!text.starts_with(prefix)) return false;
    text.remove_prefix(prefix.size());
    return true;
  };
  if (text == "memory") return true;
  if (take("dir:")) {
    url = {.kind = StoreKind::kDirectory, .path = std::string(text)};
    return !text.empty();
  }
  url.kind = StoreKind::kRedis;
  if (take("unix:")) {
    url.path = text;
    return !text.empty() && text.size() <= kMostSocketPath;
  }
  url.tls = take("rediss://");
  return (url.tls || take("redis://")) && read_redis(text, url);
}

}  // namespace

Result<StoreUrl> parse_store_url(std::string_view text) {
  StoreUrl url;
  if (read_url(text, url)) return url;
  const bool may_have_password = text.find('@') != text.npos;
  return invalid_argument(
      "storage.url is " +
      (may_have_password ? "not shown here, because it may have a password" : quote(text)) +
      "; it must be dir:PATH; redis://[USER@]HOST[:PORT][/DATABASE], rediss:// for TLS, or "
      "unix:PATH for a socket of Redis; or memory, which ends with the process" +
      (may_have_password ? ". A password must be in the file storage.password_file" : ""));
}

}  // namespace runnel
