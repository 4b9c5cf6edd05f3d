// Writes the head of an answer.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace runnel {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

// The properties of a request that shape its answer.
struct AnswerForm {
  unsigned version = 11;
  bool head_only = false;
  bool keep_alive = false;
  const Clock* clock = nullptr;  // for the date of the answer
  HttpHeaders headers = {};      // headers of every answer to this request
};

// The status line and all headers. Without a length the body comes in chunks; in HTTP/1.0 it ends
// with the connection. An answer of status 204 has no body, and so neither type nor length.
std::string answer_head(const AnswerForm& form, int status, std::string_view content_type,
                        std::optional<size_t> length, const HttpHeaders& headers = {});

}  // namespace runnel
