// Why a template cannot be parsed or rendered. It is thrown only within models/template: the public
// functions of chat_template.h catch it and return a Status.
#pragma once

#include <string>
#include <utility>

namespace runnel::jinja {

enum class FaultKind {
  kRaised,  // raise_exception of the template, with the template's message
  kSyntax,  // the source is not a template
  kFailed,  // an operation failed on its values
  kLimit,   // a limit of limits.h was exceeded
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
