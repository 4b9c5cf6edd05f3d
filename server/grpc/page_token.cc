#include "server/grpc/page_token.h"

#include <cstdint>

#include "base/limits.h"

namespace runnel {
namespace {

constexpr char kHex[] = "0123456789abcdef";
constexpr size_t kCheckBytes = 4;

// Finds tokens that were cut, changed, or made for another list. FNV-1a; no secret.
uint32_t check_of(std::string_view model, std::string_view id) {
  uint32_t hash = 2166136261U;
  for (const std::string_view part : {model, std::string_view("\0", 1), id}) {
    for (const char c : part) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  }
  return hash;
}

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

std::string make_page_token(std::string_view model, std::string_view id) {
  std::string bytes(id);
  const uint32_t hash = check_of(model, id);
  for (size_t i = 0; i < kCheckBytes; ++i) bytes += static_cast<char>(hash >> (8 * i) & 0xff);
  std::string token;
  for (const char c : bytes) {
    token += kHex[static_cast<unsigned char>(c) >> 4];
    token += kHex[static_cast<unsigned char>(c) & 15];
  }
  return token;
}

Result<std::string> read_page_token(std::string_view model, std::string_view token) {
  if (token.empty()) return std::string();
  const Status refusal = invalid_argument(
      "page_token is not one that ListSessions gave for this model; leave it empty for the first "
      "page");
  if (token.size() % 2 != 0 || token.size() > 2 * (kMaxNameLength + kCheckBytes)) return refusal;
  std::string bytes;
  for (size_t i = 0; i < token.size(); i += 2) {
    const int high = digit_of(token[i]);
    const int low = digit_of(token[i + 1]);
    if (high < 0 || low < 0) return refusal;
    bytes += static_cast<char>(high * 16 + low);
  }
  if (bytes.size() <= kCheckBytes) return refusal;
  std::string id = bytes.substr(0, bytes.size() - kCheckBytes);
  if (make_page_token(model, id) != token) return refusal;
  return id;
}

}  // namespace runnel
