// Tokenizer::from_json() reads Hugging Face's tokenizer.json. It refuses a setting that would be
// handled differently here, and does not ignore it.
#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <unordered_set>
#include <utility>

#include "base/json_fields.h"
#include "base/limits.h"
#include "base/text.h"
#include "models/text/byte_letters.h"
#include "models/text/tokenizer.h"
#include "models/text/tokenizer_steps.h"

namespace runnel {
namespace {

// A vocabulary of the largest size, with its merges as pairs, has fewer JSON values.
constexpr JsonLimits kJsonLimits{kMaxTokenizerBytes, int64_t{1} << 23, 8};
constexpr int64_t kMaxTokenBytes = 1024;
constexpr int64_t kMaxLiteralBytes = int64_t{4} << 20;  // of all added tokens
constexpr int kByteValues = 256;

// "<0x0A>": the token for a byte of a character that has no token.
std::string byte_name(int byte) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  return std::string("<0x") + kDigits[static_cast<size_t>(byte >> 4)] +
         kDigits[static_cast<size_t>(byte & 15)] + ">";
}

// The byte of such a token; -1 if it is another token.
int named_byte(std::string_view token) {
  int byte = 0;
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return -1;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  return error == std::errc() && end == token.data() + 5 && byte >= 0 ? byte : -1;
}

// UTF-8 never contains the other bytes.
bool is_in_utf8(int byte) { return byte < 0xC0 || (byte >= 0xC2 && byte < 0xF5); }

std::string with_spaces(std::string_view token) {
  std::string text;
  for (size_t at = 0; at < token.size();) {
    const bool is_mark = token.substr(at).starts_with(kSpaceMark);
    text += is_mark ? ' ' : token[at];
    at += is_mark ? kSpaceMark.size() : 1;
  }
  return text;
}

bool is_one_character(std::string_view token) {
  return std::ranges::count_if(token, [](char byte) { return (byte & 0xC0) != 0x80; }) == 1;
}

// Returns who may write an added token. Anybody may write white space. Only the model and the
// template may write other tokens that are not special, such as "<think>".
Writer writer_of(std::string_view token, bool is_special) {
  if (is_special) return Writer::kTemplate;
  return space_at_start(token) == token.size() ? Writer::kInput : Writer::kAnswer;
}

class TokenizerFile {
 public:
  TokenizerFile(const Json& tree, const std::string& file)
      : faults_(file),
        root_(faults_, &tree, "",
              {"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
               "post_processor", "decoder", "model"}) {}

  Result<std::shared_ptr<const Tokenizer>> read() {
    expect_null(root_, "truncation", "text is never cut short");
    expect_null(root_, "padding", "nothing is padded");
    read_steps();
    if (faults_.ok()) read_model();
    if (faults_.ok()) read_added_tokens();
    if (faults_.ok()) read_template();
    if (!faults_.ok()) return faults_.status();
    parts_.model = std::move(*pairs_);
    parts_.first = LiteralTokens(std::move(first_));
    parts_.second = LiteralTokens(std::move(second_));
    return std::make_shared<const Tokenizer>(std::move(parts_));
  }

 private:
  void expect_null(const Fields& fields, const char* key, const char* why) {
    const Json* const member = fields.find(key);
    if (member == nullptr || member->is_null()) return;
    faults_.add(fields.path(key), std::string("null (") + why + ")", found(*member));
  }

  void read_steps() {
    NormalizerSteps normalizer = read_normalizer(faults_, root_.find("normalizer"));
    WordSteps words = read_pre_tokenizer(faults_, root_.find("pre_tokenizer"));
    spells_bytes_ = words.spells_bytes;
    const bool marks_spaces = normalizer.marks_spaces || words.marks_spaces;
    if (marks_spaces && spells_bytes_) {
      faults_.add("pre_tokenizer", "ByteLevel, or marks for spaces", "both");
    }
    const DecoderSteps decoder =
        read_decoder(faults_, root_.find("decoder"), spells_bytes_, marks_spaces);
    unmarks_spaces_ = decoder.unmarks_spaces;
    parts_.drops_first_space = decoder.drops_first_space;
    parts_.normalizer = std::move(normalizer.steps);
    parts_.words = std::move(words.steps);
  }

  void read_template() {
    TemplateValues values =
        read_post_processor(faults_, root_.find("post_processor"), std::ssize(parts_.bytes));
    parts_.begin = std::move(values.begin);
    parts_.end = std::move(values.end);
  }

  void read_model() {
    const Json* const member = root_.require("model", "an object");
    if (member == nullptr) return;
    // Early files have no type here. They are all of this type.
    const bool is_bpe = has_type(*member, "BPE") || !member->contains("type");
    if (!is_bpe) return faults_.add("model", "the type 'BPE'", found(*member));
    const Fields model = root_.object(
        "model", {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                  "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"});
    expect_null(model, "dropout", "the same text always has the same values");
    expect_empty(model, "continuing_subword_prefix");
    expect_empty(model, "end_of_word_suffix");
    check_byte_fallback(model);
    if (faults_.ok()) read_vocabulary(model);
    if (faults_.ok()) read_byte_values(model);
    if (faults_.ok()) read_merges(model);
    // A word that is itself a token is not merged.
    if (faults_.ok() && model.boolean("ignore_merges", false)) parts_.whole_words = values_;
  }

  void check_byte_fallback(const Fields& model) {
    const bool falls_back = model.boolean("byte_fallback", false);
    if (falls_back && spells_bytes_) {
      faults_.add(model.path("byte_fallback"),
                  "false (tokens are written in the characters of ByteLevel)", "true");
    }
    if (!falls_back && !spells_bytes_) {
      faults_.add(model.path("byte_fallback"),
                  "true (without ByteLevel not every character has a token)", "false");
    }
  }

  void expect_empty(const Fields& fields, const char* key) {
    const Json* const member = fields.find(key);
    if (member == nullptr || member->is_null() || *member == "") return;
    faults_.add(fields.path(key), "null or ''", found(*member));
  }

  void read_vocabulary(const Fields& model) {
    const Json* const vocabulary = model.require("vocab", "an object");
    if (vocabulary == nullptr) return;
    if (!vocabulary->is_object()) {
      return faults_.add(model.path("vocab"), "an object", describe(*vocabulary));
    }
    for (const auto& [token, id] : vocabulary->items()) {
      const std::string path = model.path("vocab") + "[" + quote(token) + "]";
      add_value(path, token, id, bytes_of(token));
      if (!faults_.ok()) return;
    }
  }

  // The bytes of the text that `token`, an entry of the vocabulary, is decoded to.
  std::string bytes_of(const std::string& token) const {
    if (spells_bytes_) return bytes_of_letters(token).value_or(token);
    if (const int byte = named_byte(token); byte >= 0) return {static_cast<char>(byte)};
    return unmarks_spaces_ ? with_spaces(token) : token;
  }

  // The token for a byte, under byte_fallback or ByteLevel.
  std::string name_of(int byte) const {
    return spells_bytes_ ? letter_of(static_cast<unsigned char>(byte)) : byte_name(byte);
  }

  // Records that the value `id` is `token`, whose text is `bytes`.
  void add_value(const std::string& path, const std::string& token, const Json& id,
                 std::string bytes) {
    const bool fits = id.is_number_unsigned() && id.get<uint64_t>() < uint64_t{kMaxVocabulary};
    if (!fits) {
      return faults_.add(path, "an integer from 0 to " + std::to_string(kMaxVocabulary - 1),
                         describe(id));
    }
    if (token.empty() || std::ssize(token) > kMaxTokenBytes) {
      return faults_.add(path, "a token of 1 to " + std::to_string(kMaxTokenBytes) + " bytes",
                         std::to_string(token.size()));
    }
    const auto value = id.get<size_t>();
    if (value >= parts_.bytes.size()) parts_.bytes.resize(value + 1);
    if (!parts_.bytes[value].empty()) {
      return faults_.add(path, "a value of its own", describe(id) + " a second time");
    }
    parts_.bytes[value] = std::move(bytes);
    values_.emplace(token, static_cast<int32_t>(value));
  }

  void read_byte_values(const Fields& model) {
    std::array<int32_t, kByteValues> byte_values{};
    for (int byte = 0; byte < kByteValues; ++byte) {
      const std::string name = name_of(byte);
      const auto known = values_.find(name);
      if (known == values_.end() && !is_in_utf8(byte)) continue;
      if (known == values_.end()) {
        return faults_.add(model.path("vocab"), "a token for each byte of UTF-8",
                           "none for byte " + std::to_string(byte) + " (" + quote(name) + ")");
      }
      byte_values[static_cast<size_t>(byte)] = known->second;
    }
    pairs_.emplace(byte_values);
    for (const auto& [token, value] : values_) {
      if (is_one_character(token)) pairs_->add_character(token, value);
    }
  }

  void read_merges(const Fields& model) {
    const Json* const merges = model.require("merges", "an array");
    if (merges == nullptr) return;
    if (!merges->is_array()) {
      return faults_.add(model.path("merges"), "an array", describe(*merges));
    }
    for (size_t i = 0; i < merges->size() && faults_.ok(); ++i) {
      read_merge((*merges)[i], model.path("merges") + "[" + std::to_string(i) + "]");
    }
  }

  // "a b" or ["a", "b"].
  void read_merge(const Json& merge, const std::string& path) {
    std::string left, right;
    if (merge.is_string()) {
      const auto& text = merge.get_ref<const std::string&>();
      const size_t space = text.find(' ');
      left = text.substr(0, space);
      if (space != std::string::npos) right = text.substr(space + 1);
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
               merge[1].is_string()) {
      left = merge[0].get<std::string>();
      right = merge[1].get<std::string>();
    }
    if (left.empty() || right.empty()) {
      return faults_.add(path, "two tokens, as in 'a b' or [\"a\", \"b\"]", describe(merge));
    }
    std::array<int32_t, 3> values{};
    const std::array<std::string, 3> tokens = {left, right, left + right};
    for (size_t i = 0; i < tokens.size(); ++i) {
      const auto known = values_.find(tokens[i]);
      if (known == values_.end()) {
        return faults_.add(path, "tokens of model.vocab, also when joined", quote(tokens[i]));
      }
      values[i] = known->second;
    }
    pairs_->add_merge(values[0], values[1], values[2]);
  }

  void read_added_tokens() {
    const Json* const tokens = root_.find("added_tokens");
    if (tokens == nullptr || tokens->is_null()) return;
    if (!tokens->is_array()) return faults_.add("added_tokens", "an array", describe(*tokens));
    for (size_t i = 0; i < tokens->size() && faults_.ok(); ++i) {
      read_added_token((*tokens)[i], "added_tokens[" + std::to_string(i) + "]");
    }
  }

  void read_added_token(const Json& token, const std::string& path) {
    const Fields fields(
        faults_, &token, path,
        {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    expect(faults_, fields, "single_word", false, "tokens are found within words, too");
    const Json* const id = fields.require("id", "an integer");
    const Json* const content = fields.require("content", "a string");
    if (!faults_.ok()) return;
    if (!content->is_string()) {
      return faults_.add(fields.path("content"), "a string", describe(*content));
    }
    const auto& text = content->get_ref<const std::string&>();
    const auto known = values_.find(text);
    if (!added_.insert(text).second) {
      faults_.add(path, "a token of its own", quote(text) + " a second time");
    } else if (known == values_.end()) {
      add_value(path, text, *id, text);
    } else if (*id != known->second) {
      faults_.add(
          path, "the value of " + quote(text) + " in model.vocab, " + std::to_string(known->second),
          describe(*id));
    }
    if (!faults_.ok()) return;
    add_literal(fields, path, text, values_.at(text));
  }

  // A normalized token is found by its normalized text.
  void add_literal(const Fields& fields, const std::string& path, const std::string& text,
                   int32_t value) {
    parts_.bytes[static_cast<size_t>(value)] = spells_bytes_ ? text : bytes_of(text);
    const bool is_normalized = fields.boolean("normalized", false);
    LiteralToken token{.text = is_normalized ? normalized(text) : text,
                       .value = value,
                       .takes_space_before = fields.boolean("lstrip", false),
                       .takes_space_after = fields.boolean("rstrip", false),
                       .found_in = writer_of(text, fields.boolean("special", false))};
    literal_bytes_ += std::ssize(token.text);
    if (literal_bytes_ > kMaxLiteralBytes) {
      return faults_.add("added_tokens",
                         "at most " + std::to_string(kMaxLiteralBytes) + " bytes in all", "more");
    }
    if (is_normalized && !added_normalized_.insert(token.text).second) {
      return faults_.add(path, "a token of its own",
                         quote(text) + ", which is another one when normalized");
    }
    (is_normalized ? second_ : first_).push_back(std::move(token));
  }

  // `text` after the normalizer.
  std::string normalized(std::string_view text) const {
    MarkedText out{std::string(text), {}};
    for (const PieceChange change : parts_.normalizer) out = changed(change, out, true);
    return std::move(out.bytes);
  }

  Faults faults_;
  const Fields root_;
  std::unordered_map<std::string, int32_t> values_;   // by token, as the file writes it
  std::unordered_set<std::string> added_;             // tokens of added_tokens
  std::unordered_set<std::string> added_normalized_;  // the normalized ones, in normalized form
  bool spells_bytes_ = false;                         // tokens are in the letters of ByteLevel
  bool unmarks_spaces_ = false;                       // marks in tokens stand for spaces
  std::optional<BytePairs> pairs_;
  std::vector<LiteralToken> first_, second_;
  int64_t literal_bytes_ = 0;
  TokenizerParts parts_{.model = ByteTrie(), .bytes = {}};
};

}  // namespace

Result<std::shared_ptr<const Tokenizer>> Tokenizer::from_json(std::string_view json,
                                                              const std::string& file) {
  const Result<Json> tree = parse_json(json, file, kJsonLimits);
  if (!tree.ok()) return tree.status();
  return from_tree(*tree, file);
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::from_tree(const Json& tree,
                                                              const std::string& file) {
  return TokenizerFile(tree, file).read();
}

}  // namespace runnel
