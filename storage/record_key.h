// The key of a session's record, and the name of the list that the session is in. They depend on
// the model's digest and not on its name, so that a state is never used with other weights.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace runnel {

// 64 hexadecimal digits: SHA-256 of the three texts, each preceded by its length.
std::string record_key(std::string_view model_digest, std::string_view owner, std::string_view id);

// Whether `text` has the form of a key.
bool is_record_key(std::string_view text);

inline constexpr size_t kListNameLength = 32;
// Names the list of all sessions of an owner and a model: kListNameLength hexadecimal digits.
std::string record_list(std::string_view model_digest, std::string_view owner);
// Whether `text` has the form of such a name.
bool is_record_list(std::string_view text);
// Whether a session of this id can be in a list: 1 to kMaxNameLength characters of A-Z a-z 0-9 . _
// : -
bool is_listed_id(std::string_view id);

}  // namespace runnel
