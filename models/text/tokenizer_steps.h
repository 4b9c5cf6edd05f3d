// Members of a tokenizer.json that say what surrounds its vocabulary. What would be done
// differently here is refused, not left out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json_fields.h"
#include "models/text/text_steps.h"

namespace runnel {

// Each reads one member, which is null where the file has none, and adds what is wrong to `faults`.

struct NormalizerSteps {
  std::vector<PieceChange> steps;
  bool marks_spaces = false;
};
// NFC, and SentencePiece's Prepend and Replace.
NormalizerSteps read_normalizer(Faults& faults, const Json* member);

struct WordSteps {
  std::vector<TextStep> steps;
  bool spells_bytes = false;  // words are in the letters of ByteLevel
  bool marks_spaces = false;
};
// ByteLevel, Metaspace, Split, Punctuation, Digits, and a sequence of them.
WordSteps read_pre_tokenizer(Faults& faults, const Json* member);

struct DecoderSteps {
  bool unmarks_spaces = false;     // marks become spaces
  bool drops_first_space = false;  // of a whole text
};
// The inverse of what was done to bytes and spaces.
DecoderSteps read_decoder(Faults& faults, const Json* member, bool spells_bytes, bool marks_spaces);

struct TemplateValues {
  std::vector<int32_t> begin, end;  // before and after a text
};
// ByteLevel, TemplateProcessing, and a sequence of them. `size`: values are below it.
TemplateValues read_post_processor(Faults& faults, const Json* member, int64_t size);

// A value of JSON as an error message shows it: by its type where it has one.
std::string found(const Json& value);
bool has_type(const Json& value, const char* type);

// Adds a fault, with the reason, where the member is there and not `value`.
void expect(Faults& faults, const Fields& fields, const char* key, bool value, const char* why);

}  // namespace runnel
