#include "server/rest/words.h"

#include "base/field.h"
#include "base/fields.h"

namespace runnel {
namespace {

// The text to tokenize is called `prompt`, as in vLLM.
constexpr NamedField kWords[] = {
    {fields::kModel, "model"},        {fields::kId, "id"},
    {fields::kPosition, "position"},  {fields::kChildren, "children"},
    {fields::kCount, "count"},        {fields::kPageSize, "limit"},
    {fields::kPageToken, "after"},    {fields::kAllowInexact, "allow_inexact"},
    {fields::kAnyOwner, "any_owner"}, {fields::kExpiresIn, "expires_in"},
    {fields::kText, "prompt"},
};

}  // namespace

std::string_view rest_word(std::string_view field) { return word_in(kWords, field); }

Fault rest_fault(const Status& status) { return fault_of(status, rest_word); }

}  // namespace runnel
