// Why a template cannot be parsed or rendered. Thrown within models/template only: the public
// functions of chat_template.h catch it and return a Status.
#pragma once

#include <string>
#include <utility>

namespace runnel::jinja {

enum class FaultKind {
  kRaised,  // by the template's raise_exception: the message is its own
  kSyntax,  // the source is not a template
  kFailed,  // an operation failed on the values that it got
  kLimit,   // a bound of limits.h
};

struct Fault {
  FaultKind kind;
  std::string message;
  int line = 0;  // 0: not known yet
};

[[noreturn]] inline void fail(std::string message) {
  throw Fault{FaultKind::kFailed, std::move(message)};
}

}  // namespace runnel::jinja
