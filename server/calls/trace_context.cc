#include "server/calls/trace_context.h"

#include <optional>

#include "base/hex.h"

namespace runnel {
namespace {

constexpr size_t kLength = 55;  // "00-", 32 digits, "-", 16 digits, "-", 2 digits

bool is_zero(std::string_view bytes) {
  return bytes.find_first_not_of('\0') == std::string_view::npos;
}

}  // namespace

std::string trace_id_of(std::string_view traceparent) {
  if (traceparent.size() < kLength) return "";
  if (traceparent[2] != '-' || traceparent[35] != '-' || traceparent[52] != '-') return "";
  const auto version = bytes_of_hex(traceparent.substr(0, 2));
  const auto trace = bytes_of_hex(traceparent.substr(3, 32));
  const auto parent = bytes_of_hex(traceparent.substr(36, 16));
  const auto flags = bytes_of_hex(traceparent.substr(53, 2));
  if (!version || !trace || !parent || !flags) return "";
  if (*version == "\xff" || is_zero(*trace) || is_zero(*parent)) return "";
  // Later versions may add fields at the end.
  const std::string_view rest = traceparent.substr(kLength);
  if (!rest.empty() && (*version == std::string_view("\0", 1) || rest[0] != '-')) return "";
  return hex(std::string_view(*trace));
}

}  // namespace runnel
