// Members of the objects in a body, and faults that name them by their path: "messages[1].role".
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "server/host/fault.h"

namespace runnel {

// INVALID_ARGUMENT for the member at `at`, with the message "AT WHAT".
Fault refusal(const std::string& at, const std::string& what);

// The text of a value for messages.
std::string shown(const OrderedJson& value);

// The fault of an unknown member of the object at `at`.
Fault unknown_member(const std::string& at, const std::string& key);

// Refuses the first member that is not null and not one of `known`.
Fault check_members(const OrderedJson& object, const std::string& at,
                    std::span<const std::string_view> known);

// Null: there is no such member, or it is null.
OrderedJson* member(OrderedJson& object, const char* key);

// Whether `value` is one of these texts. Null: there is no such member.
bool is_one_of(const OrderedJson* value, std::span<const std::string_view> texts);

// Checks that `value`, the member at `at`, is a text. Null: there is no such member.
Fault check_text(const OrderedJson* value, const std::string& at, bool required);

}  // namespace runnel
