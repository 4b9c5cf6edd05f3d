#include "server/grpc/page_token.h"

#include <optional>

#include "base/fields.h"
#include "base/hash.h"
#include "base/hex.h"
#include "base/limits.h"

namespace runnel {
namespace {

constexpr size_t kCheckDigits = 16;

// Detects tokens that were truncated, changed, or made for another list. It is not a secret.
std::string check_digits(std::string_view model, std::string_view id) {
  return hex(hash_of(std::string(model) + '\0' + std::string(id)));
}

}  // namespace

std::string make_page_token(std::string_view model, std::string_view id) {
  return hex(id) + check_digits(model, id);
}

Result<std::string> read_page_token(std::string_view model, std::string_view token) {
  if (token.empty()) return std::string();
  const Status refusal = invalid_argument(
      place_of(fields::kPageToken) +
      " is not one that ListSessions gave for this model; leave it empty for the first "
      "page");
  if (token.size() <= kCheckDigits || token.size() > 2 * kMaxNameLength + kCheckDigits) {
    return refusal;
  }
  const size_t id_digits = token.size() - kCheckDigits;
  std::optional<std::string> id = bytes_of_hex(token.substr(0, id_digits));
  if (!id || check_digits(model, *id) != token.substr(id_digits)) return refusal;
  return std::move(*id);
}

}  // namespace runnel
