#include "models/text/tokenizer_steps.h"

#include <array>
#include <utility>

#include "base/text.h"

namespace runnel {
namespace {

constexpr size_t kMaxSteps = 16;  // of one sequence

struct Step {
  const Json* node;
  std::string path;
};

// The steps of a sequence, which has them under `list`, or else the member itself; none if there is
// no member.
std::vector<Step> steps_of(Faults& faults, const Json* member, const char* key, const char* list) {
  if (member == nullptr || member->is_null()) return {};
  if (!has_type(*member, "Sequence")) return {{member, key}};
  const Fields sequence(faults, member, key, {"type", list});
  const Json* const nodes = sequence.require(list, "an array");
  if (nodes == nullptr) return {};
  const std::string path = sequence.path(list);
  if (!nodes->is_array() || nodes->size() > kMaxSteps) {
    faults.add(path, "an array of at most " + std::to_string(kMaxSteps), describe(*nodes));
    return {};
  }
  std::vector<Step> steps;
  for (size_t i = 0; i < nodes->size(); ++i) {
    steps.push_back({&(*nodes)[i], path + "[" + std::to_string(i) + "]"});
  }
  return steps;
}

void expect_text(Faults& faults, const Fields& fields, const char* key, std::string_view text) {
  const Json* const member = fields.require(key, quote(text));
  if (member != nullptr && *member != text) {
    faults.add(fields.path(key), quote(text), describe(*member));
  }
}

// Checks a Replace, which may only replace `pattern` with `content`.
void check_replace(Faults& faults, const Step& step, std::string_view pattern,
                   std::string_view content) {
  const Fields fields(faults, step.node, step.path, {"type", "pattern", "content"});
  expect_text(faults, fields.object("pattern", {"String"}), "String", pattern);
  expect_text(faults, fields, "content", content);
}

void add_pattern(Faults& faults, std::string_view text, const std::string& path,
                 std::vector<TextStep>& steps) {
  Result<SplitPattern> pattern = SplitPattern::compile(text);
  if (!pattern.ok()) return faults.add(path, pattern.status().message());
  steps.emplace_back(std::move(*pattern));
}

void read_byte_level(Faults& faults, const Step& step, WordSteps& words) {
  const Fields fields(faults, step.node, step.path,
                      {"type", "add_prefix_space", "trim_offsets", "use_regex"});
  if (fields.boolean("add_prefix_space", true)) words.steps.emplace_back(put_space_before);
  if (fields.boolean("use_regex", true)) {
    add_pattern(faults, SplitPattern::gpt2(), step.path, words.steps);
  }
  words.steps.emplace_back(spell_bytes);
  words.spells_bytes = true;
}

enum class Prefix { kAlways, kFirst, kNever };

// Where Metaspace puts a mark before a piece. Older files have only add_prefix_space.
Prefix read_prefix(Faults& faults, const Fields& metaspace) {
  constexpr std::array kPrefixes = {Choice{"always", Prefix::kAlways},
                                    Choice{"first", Prefix::kFirst},
                                    Choice{"never", Prefix::kNever}};
  Prefix prefix = Prefix::kAlways;
  if (metaspace.find("prepend_scheme") != nullptr) {
    prefix = metaspace.choice("prepend_scheme", kPrefixes);
  }
  if (prefix != Prefix::kNever) {
    expect(faults, metaspace, "add_prefix_space", true, "as prepend_scheme is not 'never'");
  }
  expect_text(faults, metaspace, "replacement", kSpaceMark);
  return prefix;
}

Fields metaspace_of(Faults& faults, const Step& step) {
  return {faults,
          step.node,
          step.path,
          {"type", "replacement", "str_rep", "add_prefix_space", "prepend_scheme", "split"}};
}

void read_metaspace(Faults& faults, const Step& step, WordSteps& words) {
  const Fields fields = metaspace_of(faults, step);
  words.marks_spaces = true;
  words.steps.emplace_back(mark_spaces);
  const Prefix prefix = read_prefix(faults, fields);
  if (prefix == Prefix::kAlways) words.steps.emplace_back(put_mark_before_unmarked);
  if (prefix == Prefix::kFirst) words.steps.emplace_back(put_mark_before_start);
  if (!fields.boolean("split", true)) return;
  const std::string mark(kSpaceMark);
  add_pattern(faults, mark + "[^" + mark + "]*", step.path, words.steps);
}

void read_split(Faults& faults, const Step& step, WordSteps& words) {
  const Fields split(faults, step.node, step.path, {"type", "pattern", "behavior", "invert"});
  split.choice("behavior", std::array{Choice{"Isolated", 0}});
  expect(faults, split, "invert", false, "what the pattern matches is a word");
  const Fields pattern = split.object("pattern", {"Regex"});
  const Json* const regex = pattern.require("Regex", "a string");
  if (regex == nullptr || !faults.ok()) return;
  if (!regex->is_string()) {
    return faults.add(pattern.path("Regex"), "a string", describe(*regex));
  }
  add_pattern(faults, regex->get_ref<const std::string&>(), pattern.path("Regex"), words.steps);
}

void read_punctuation(Faults& faults, const Step& step, WordSteps& words) {
  constexpr const char* kSigns = R"([\p{P}$+<=>\^`|~])";
  const Fields fields(faults, step.node, step.path, {"type", "behavior"});
  const bool is_run =
      fields.find("behavior") != nullptr &&
      fields.choice("behavior", std::array{Choice{"Isolated", false}, Choice{"Contiguous", true}});
  add_pattern(faults, std::string(kSigns) + (is_run ? "+" : ""), step.path, words.steps);
}

void read_digits(Faults& faults, const Step& step, WordSteps& words) {
  const Fields fields(faults, step.node, step.path, {"type", "individual_digits"});
  const bool is_run = !fields.boolean("individual_digits", false);
  add_pattern(faults, std::string(R"(\p{N})") + (is_run ? "+" : ""), step.path, words.steps);
}

// Reads what precedes and what follows the text, which is $A.
void read_template(Faults& faults, const Step& step, int64_t size, TemplateValues& values) {
  const Fields fields(faults, step.node, step.path, {"type", "single", "pair", "special_tokens"});
  const Json* const single = fields.require("single", "an array");
  const Json* const tokens = fields.require("special_tokens", "an object");
  if (!faults.ok()) return;
  std::vector<int32_t> before, after;
  int texts = 0;
  for (const Json& item : *single) {
    if (item.is_object() && item.contains("Sequence")) {
      ++texts;
      continue;
    }
    const Json::json_pointer id("/SpecialToken/id");
    const std::string name =
        item.is_object() && item.contains(id) && item[id].is_string() ? item[id] : Json("");
    const Json::json_pointer ids = Json::json_pointer() / name / "ids";
    if (!tokens->contains(ids) || !tokens->at(ids).is_array()) {
      return faults.add(fields.path("single"), "the text and tokens of special_tokens",
                        describe(item));
    }
    for (const Json& value : tokens->at(ids)) {
      if (!value.is_number_unsigned() || value.get<uint64_t>() >= static_cast<uint64_t>(size)) {
        return faults.add(fields.path("special_tokens") + "[" + quote(name) + "].ids",
                          "values that there are", describe(value));
      }
      (texts == 0 ? before : after).push_back(value.get<int32_t>());
    }
  }
  if (texts != 1) faults.add(fields.path("single"), "one text", std::to_string(texts));
  values.begin.insert(values.begin.begin(), before.begin(), before.end());
  values.end.insert(values.end.end(), after.begin(), after.end());
}

// Reads a decoder that puts bytes together. Each step inverts something that encoding does.
DecoderSteps read_fallback_decoder(Faults& faults, const std::vector<Step>& steps) {
  DecoderSteps decoder;
  for (const Step& step : steps) {
    if (has_type(*step.node, "Metaspace")) {
      decoder.unmarks_spaces = true;
      decoder.drops_first_space = read_prefix(faults, metaspace_of(faults, step)) != Prefix::kNever;
    } else if (has_type(*step.node, "Replace")) {
      decoder.unmarks_spaces = true;
      check_replace(faults, step, kSpaceMark, " ");
    } else if (has_type(*step.node, "Strip")) {
      const Fields strip(faults, step.node, step.path, {"type", "content", "start", "stop"});
      expect_text(faults, strip, "content", " ");
      decoder.drops_first_space = strip.integer("start", 0, 1) == 1;
      strip.integer("stop", 0, 0);
    } else if (!has_type(*step.node, "ByteFallback") && !has_type(*step.node, "Fuse")) {
      faults.add(step.path,
                 "the type 'Replace', 'ByteFallback', 'Fuse', 'Strip' or 'Metaspace', as the "
                 "pre_tokenizer has no ByteLevel",
                 found(*step.node));
    }
  }
  return decoder;
}

}  // namespace

std::string found(const Json& value) {
  const auto type = value.is_object() ? value.find("type") : value.end();
  return value.is_object() && type != value.end() ? "the type " + describe(*type) : describe(value);
}

bool has_type(const Json& value, const char* type) {
  const auto member = value.is_object() ? value.find("type") : value.end();
  return value.is_object() && member != value.end() && *member == type;
}

void expect(Faults& faults, const Fields& fields, const char* key, bool value, const char* why) {
  if (fields.boolean(key, value) == value) return;
  faults.add(fields.path(key), std::string(value ? "true" : "false") + " (" + why + ")",
             value ? "false" : "true");
}

NormalizerSteps read_normalizer(Faults& faults, const Json* member) {
  NormalizerSteps normalizer;
  for (const Step& step : steps_of(faults, member, "normalizer", "normalizers")) {
    if (has_type(*step.node, "NFC")) {
      normalizer.steps.emplace_back(compose);
    } else if (has_type(*step.node, "Prepend")) {
      expect_text(faults, Fields(faults, step.node, step.path, {"type", "prepend"}), "prepend",
                  kSpaceMark);
      normalizer.steps.emplace_back(put_mark_before);
      normalizer.marks_spaces = true;
    } else if (has_type(*step.node, "Replace")) {
      check_replace(faults, step, " ", kSpaceMark);
      normalizer.steps.emplace_back(mark_spaces);
      normalizer.marks_spaces = true;
    } else {
      faults.add(step.path, "null or the type 'NFC', 'Prepend' or 'Replace'", found(*step.node));
    }
  }
  return normalizer;
}

WordSteps read_pre_tokenizer(Faults& faults, const Json* member) {
  using Read = void (*)(Faults&, const Step&, WordSteps&);
  constexpr std::array kTypes = {
      Choice<Read>{"ByteLevel", read_byte_level}, Choice<Read>{"Metaspace", read_metaspace},
      Choice<Read>{"Split", read_split}, Choice<Read>{"Punctuation", read_punctuation},
      Choice<Read>{"Digits", read_digits}};
  WordSteps words;
  for (const Step& step : steps_of(faults, member, "pre_tokenizer", "pretokenizers")) {
    Read read = nullptr;
    std::string expected;
    for (const Choice<Read>& type : kTypes) {
      if (has_type(*step.node, type.name)) read = type.value;
      expected += (expected.empty() ? "'" : ", '") + std::string(type.name) + "'";
    }
    const bool is_second = words.spells_bytes && read == read_byte_level;
    if (read == nullptr || is_second) {
      faults.add(step.path, is_second ? "one ByteLevel" : "one of the types " + expected,
                 is_second ? "a second one" : found(*step.node));
      return words;
    }
    read(faults, step, words);
  }
  return words;
}

DecoderSteps read_decoder(Faults& faults, const Json* member, bool spells_bytes,
                          bool marks_spaces) {
  if (spells_bytes) {
    if (member != nullptr && !member->is_null() && !has_type(*member, "ByteLevel")) {
      faults.add("decoder", "null or the type 'ByteLevel'", found(*member));
    }
    return {};
  }
  const DecoderSteps decoder =
      read_fallback_decoder(faults, steps_of(faults, member, "decoder", "decoders"));
  if (decoder.unmarks_spaces != marks_spaces) {
    faults.add("decoder",
               marks_spaces ? "marks to become spaces, as spaces become marks"
                            : "marks to stay, as spaces do",
               member == nullptr ? "no such key" : found(*member));
  }
  return decoder;
}

TemplateValues read_post_processor(Faults& faults, const Json* member, int64_t size) {
  TemplateValues values;
  for (const Step& step : steps_of(faults, member, "post_processor", "processors")) {
    if (has_type(*step.node, "TemplateProcessing")) {
      read_template(faults, step, size, values);
    } else if (!has_type(*step.node, "ByteLevel")) {
      faults.add(step.path, "null or the type 'ByteLevel' or 'TemplateProcessing'",
                 found(*step.node));
    }
  }
  return values;
}

}  // namespace runnel
