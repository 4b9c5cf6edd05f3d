// Reads the members of a tokenizer.json other than its vocabulary. An option that is not supported
// is refused, not ignored.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json_fields.h"
#include "models/text/text_steps.h"

namespace runnel {

// Each function reads one member, which is null if the file does not have it, and adds its faults
// to `faults`.

struct NormalizerSteps {
  std::vector<PieceChange> steps;
  bool marks_spaces = false;
};
// Supports NFC, and SentencePiece's Prepend and Replace.
NormalizerSteps read_normalizer(Faults& faults, const Json* member);

struct WordSteps {
  std::vector<TextStep> steps;
  bool spells_bytes = false;  // words are spelled in the letters of ByteLevel
  bool marks_spaces = false;
};
// Supports ByteLevel, Metaspace, Split, Punctuation, Digits, and a sequence of them.
WordSteps read_pre_tokenizer(Faults& faults, const Json* member);

struct DecoderSteps {
  bool unmarks_spaces = false;     // marks become spaces
  bool drops_first_space = false;  // of a whole text
};
// Checks that the decoder reverses the changes that were made to bytes and spaces.
DecoderSteps read_decoder(Faults& faults, const Json* member, bool spells_bytes, bool marks_spaces);

struct TemplateValues {
  std::vector<int32_t> begin, end;  // before and after a text
};
// Supports ByteLevel, TemplateProcessing, and a sequence of them. All values must be less than
// `size`.
TemplateValues read_post_processor(Faults& faults, const Json* member, int64_t size);

// A JSON value for an error message: its type if it has one.
std::string found(const Json& value);
bool has_type(const Json& value, const char* type);

// Adds a fault with the reason `why` if the member is there and is not `value`.
void expect(Faults& faults, const Fields& fields, const char* key, bool value, const char* why);

}  // namespace runnel
