// A callback that is called exactly once with an outcome, and bytes to send with such a callback.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "base/status.h"
#include "server/http/http_server.h"

namespace runnel {

// Calls a function once with an outcome. If it has not been called, the destructor calls it with
// kLost().
template <auto kLost>
class Teller {
 public:
  using Outcome = decltype(kLost());

  Teller() = default;
  explicit Teller(std::function<void(Outcome)> tell) : tell_(std::move(tell)) {}
  Teller(Teller&& other) noexcept : tell_(std::exchange(other.tell_, nullptr)) {}
  Teller& operator=(Teller&& other) noexcept {
    std::swap(tell_, other.tell_);
    return *this;
  }
  ~Teller() {
    if (tell_) tell(kLost());
  }

  explicit operator bool() const { return tell_ != nullptr; }
  void forget() { tell_ = nullptr; }
  void tell(Outcome outcome) {
    if (const auto tell = std::exchange(tell_, nullptr)) tell(std::move(outcome));
  }

 private:
  std::function<void(Outcome)> tell_;
};

inline bool not_taken() { return false; }
inline HttpPiece no_piece() { return Status(Code::kCancelled, "the client has gone"); }

using Taken = Teller<not_taken>;     // whether the system has taken a piece of an answer
using BodyTaker = Teller<no_piece>;  // the next piece of a body

// Bytes that are to be sent.
struct Piece {
  std::string bytes;
  Taken taken = {};
  std::shared_ptr<const void> kept = nullptr;  // kept until the bytes have been sent
};

}  // namespace runnel
