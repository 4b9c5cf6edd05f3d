// The page_token of a list: an opaque text that identifies where the next page begins.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace runnel {

// A token for the page that follows `id` in the list of `model`.
std::string make_page_token(std::string_view model, std::string_view id);

// The id in a token. "" for an empty token, which means the first page. INVALID_ARGUMENT if
// make_page_token() did not make the token for this model.
Result<std::string> read_page_token(std::string_view model, std::string_view token);

}  // namespace runnel
