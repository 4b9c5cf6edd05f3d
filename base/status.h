// Expected failures as values: a code, a message that says what to do, the field of the request
// that is at fault, and when to retry.
#pragma once

#include <cassert>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/field.h"

namespace runnel {

// The canonical codes of gRPC, with its numbers, so that the server maps them by a cast.
enum class Code {
  kOk = 0,
  kCancelled = 1,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};

// The code's name as clients know it ("INVALID_ARGUMENT").
const char* code_name(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // OK
  // `message` may have placeholders for the names of fields (base/field.h).
  Status(Code code, std::string message);

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  // The message with the canonical names of fields.
  const std::string& message() const { return message_; }
  // The message with a door's words for fields.
  std::string message(const FieldWord& word_of) const;
  // The message with placeholders for the names of fields.
  const std::string& raw_message() const { return raw_.empty() ? message_ : raw_; }

  // The canonical name of the field that caused the error: the field from at_field(), or else the
  // field of the first placeholder in the message, not counting hints. Empty if no single field
  // caused it.
  std::string_view field() const;
  // `field` must have static storage.
  Status& at_field(std::string_view field) {
    field_ = field;
    return *this;
  }

  // How long a client should wait before it tries again. None if trying again cannot help.
  std::optional<std::chrono::milliseconds> retry_after() const { return retry_after_; }
  Status& with_retry_after(std::chrono::milliseconds delay) {
    retry_after_ = delay;
    return *this;
  }

  // The label under which metrics count a refusal of a valid call ("mailbox"); empty for others.
  std::string_view reason() const { return reason_; }
  // `reason` must have static storage.
  Status& with_reason(std::string_view reason) {
    reason_ = reason;
    return *this;
  }

  // "NOT_FOUND: no session named 'a'".
  std::string to_string() const;

  friend bool operator==(const Status&, const Status&) = default;

 private:
  Code code_ = Code::kOk;
  std::string message_;
  std::string raw_;  // empty: the same as the message
  std::string_view field_;
  std::optional<std::chrono::milliseconds> retry_after_;
  std::string_view reason_;
};

inline Status invalid_argument(std::string message) {
  return {Code::kInvalidArgument, std::move(message)};
}
inline Status not_found(std::string message) { return {Code::kNotFound, std::move(message)}; }

// The value of an operation that succeeded, or the status of one that failed. Reading the value of
// a failed operation stops the process.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : held_(std::move(value)) {}        // NOLINT(google-explicit-constructor)
  Result(Status status) : held_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    assert(!this->status().ok());
  }

  bool ok() const { return std::holds_alternative<T>(held_); }
  Status status() const { return ok() ? Status() : std::get<Status>(held_); }

  T& value() & { return std::get<T>(held_); }
  const T& value() const& { return std::get<T>(held_); }
  T&& value() && { return std::get<T>(std::move(held_)); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }

 private:
  std::variant<Status, T> held_;
};

}  // namespace runnel
