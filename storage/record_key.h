// The key of a session's record. It depends on the model's digest and not on its name, so that
// other weights never meet the state.
#pragma once

#include <string>
#include <string_view>

namespace runnel {

// 64 hexadecimal digits: SHA-256 of the three texts, each preceded by its length.
std::string record_key(std::string_view model_digest, std::string_view owner, std::string_view id);

// Whether `text` has the form of a key.
bool is_record_key(std::string_view text);

}  // namespace runnel
