// Expected failures as values: a code, a message that says what to do, and when to try again.
#pragma once

#include <cassert>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

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
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

  // How long a client should wait before it tries again; none when trying again cannot help.
  std::optional<std::chrono::milliseconds> retry_after() const { return retry_after_; }
  Status& with_retry_after(std::chrono::milliseconds delay) {
    retry_after_ = delay;
    return *this;
  }

  // The label under which metrics count a refusal of a valid call ("mailbox"); empty for others.
  std::string_view reason() const { return reason_; }
  // `reason` is of static storage.
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
  std::optional<std::chrono::milliseconds> retry_after_;
  std::string_view reason_;
};

inline Status invalid_argument(std::string message) {
  return {Code::kInvalidArgument, std::move(message)};
}
inline Status not_found(std::string message) { return {Code::kNotFound, std::move(message)}; }

// A T, or the reason why there is none. Reading the value of a failure stops the process.
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
