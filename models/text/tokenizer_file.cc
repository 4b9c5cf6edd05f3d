// Tokenizer::parse(): tokenizer.json as Hugging Face has it. What would be done differently here is
// refused, not left out.
#include <array>
#include <optional>
#include <unordered_set>
#include <utility>

#include "base/json_fields.h"
#include "base/limits.h"
#include "base/text.h"
#include "models/text/tokenizer.h"

namespace runnel {
namespace {

// A vocabulary of the largest size, with its merges as pairs, has fewer JSON values.
constexpr JsonLimits kJsonLimits{kMaxTokenizerBytes, int64_t{1} << 23, 8};
constexpr int64_t kMaxTokenBytes = 1024;
constexpr int kBytes = 256;

// The characters that stand for bytes in the tokens of a vocabulary: printable ones of Latin-1 for
// themselves, and for the other bytes, in order, those from U+0100 on.
class ByteAlphabet {
 public:
  ByteAlphabet() {
    byte_of_.fill(-1);
    int other = kBytes;
    for (int byte = 0; byte < kBytes; ++byte) {
      const bool prints = (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
      const int character = prints ? byte : other++;
      byte_of_[static_cast<size_t>(character)] = byte;
      if (character < 0x80) {
        characters_[static_cast<size_t>(byte)] = {static_cast<char>(character)};
      } else {
        characters_[static_cast<size_t>(byte)] = {static_cast<char>(0xC0 | character >> 6),
                                                  static_cast<char>(0x80 | (character & 0x3F))};
      }
    }
  }

  const std::string& character(int byte) const { return characters_[static_cast<size_t>(byte)]; }

  // The bytes that `token`, which is UTF-8, stands for; none where one of its characters stands for
  // no byte.
  std::optional<std::string> bytes(std::string_view token) const {
    std::string bytes;
    for (size_t at = 0; at < token.size(); ++at) {
      unsigned character = static_cast<unsigned char>(token[at]);
      if (character >= 0xE0) return std::nullopt;  // three bytes or more
      if (character >= 0x80) {
        character = (character & 0x1F) << 6 | (static_cast<unsigned char>(token[++at]) & 0x3F);
      }
      if (character >= byte_of_.size() || byte_of_[character] < 0) return std::nullopt;
      bytes += static_cast<char>(byte_of_[character]);
    }
    return bytes;
  }

 private:
  std::array<int, 0x144> byte_of_{};
  std::array<std::string, kBytes> characters_;
};

// A value that was not expected, by its type where it has one.
std::string found(const Json& value) {
  const auto type = value.is_object() ? value.find("type") : value.end();
  return value.is_object() && type != value.end() ? "the type " + describe(*type) : describe(value);
}

bool has_type(const Json& value, const char* type) {
  const auto member = value.is_object() ? value.find("type") : value.end();
  return value.is_object() && member != value.end() && *member == type;
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
    expect_null(root_, "normalizer", "text is taken as it is");
    check_byte_level("decoder", "");
    check_byte_level("post_processor", "; a first value is given by begin in config.json");
    if (faults_.ok()) read_model();
    if (faults_.ok()) read_added_tokens();
    if (faults_.ok()) read_pre_tokenizer();
    if (!faults_.ok()) return faults_.status();
    return std::make_shared<const Tokenizer>(TokenizerParts{.first = std::move(first_),
                                                            .second = std::move(second_),
                                                            .add_prefix = add_prefix_,
                                                            .patterns = std::move(patterns_),
                                                            .words = std::move(words_),
                                                            .pairs = std::move(*pairs_),
                                                            .bytes = std::move(bytes_)});
  }

 private:
  void expect_null(const Fields& fields, const char* key, const char* why) {
    const Json* const member = fields.find(key);
    if (member == nullptr || member->is_null()) return;
    faults_.add(fields.path(key), std::string("null (") + why + ")", found(*member));
  }

  void expect(const Fields& fields, const char* key, bool value, const char* why) {
    if (fields.boolean(key, value) == value) return;
    faults_.add(fields.path(key), std::string(value ? "true" : "false") + " (" + why + ")",
                value ? "false" : "true");
  }

  void check_byte_level(const char* key, const char* what_to_do) {
    const Json* const member = root_.find(key);
    if (member == nullptr || member->is_null() || has_type(*member, "ByteLevel")) return;
    faults_.add(key, "null or the type 'ByteLevel'", found(*member) + what_to_do);
  }

  void read_model() {
    const Json* const member = root_.require("model", "an object");
    if (member == nullptr) return;
    // Files of the first years have no type here: they are all of this one.
    const bool is_bpe = has_type(*member, "BPE") || !member->contains("type");
    if (!is_bpe) return faults_.add("model", "the type 'BPE'", found(*member));
    const Fields model = root_.object(
        "model", {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                  "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"});
    expect_null(model, "dropout", "the same text always has the same values");
    expect_null(model, "unk_token", "every byte is known");
    expect_empty(model, "continuing_subword_prefix");
    expect_empty(model, "end_of_word_suffix");
    expect(model, "byte_fallback", false, "tokens are written in the characters of ByteLevel");
    if (faults_.ok()) read_vocabulary(model);
    if (faults_.ok()) read_byte_values(model);
    if (faults_.ok()) read_merges(model);
    if (faults_.ok() && model.boolean("ignore_merges", false)) read_words();
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
      add_value(path, token, id, alphabet_.bytes(token).value_or(token));
      if (!faults_.ok()) return;
    }
  }

  // `token`, which stands for `bytes`, has the value `id`.
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
    if (value >= bytes_.size()) bytes_.resize(value + 1);
    if (!bytes_[value].empty()) {
      return faults_.add(path, "a value of its own", describe(id) + " a second time");
    }
    bytes_[value] = std::move(bytes);
    values_.emplace(token, static_cast<int32_t>(value));
  }

  void read_byte_values(const Fields& model) {
    std::array<int32_t, kBytes> byte_values{};
    for (int byte = 0; byte < kBytes; ++byte) {
      const auto known = values_.find(alphabet_.character(byte));
      if (known == values_.end()) {
        return faults_.add(model.path("vocab"), "a token for each single byte",
                           "none for byte " + std::to_string(byte) + " (" +
                               quote(alphabet_.character(byte)) + ")");
      }
      byte_values[static_cast<size_t>(byte)] = known->second;
    }
    pairs_.emplace(byte_values);
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

  // With ignore_merges a word that is a token is not merged first.
  void read_words() {
    for (const auto& [token, value] : values_) {
      if (auto bytes = alphabet_.bytes(token)) words_.emplace(std::move(*bytes), value);
    }
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
    for (const char* const key : {"single_word", "lstrip", "rstrip"}) {
      expect(fields, key, false, "tokens are found wherever they stand");
    }
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
    const int32_t value = values_.at(text);
    bytes_[static_cast<size_t>(value)] = text;
    (fields.boolean("normalized", false) ? second_ : first_).add(text, value);
  }

  void read_pre_tokenizer() {
    const char* const expected = "the type 'ByteLevel', or a 'Sequence' that ends with it";
    const Json* const member = root_.require("pre_tokenizer", expected);
    if (member == nullptr) return;
    if (has_type(*member, "ByteLevel")) return read_byte_level(*member, "pre_tokenizer", true);
    if (!has_type(*member, "Sequence")) {
      return faults_.add("pre_tokenizer", expected, found(*member));
    }
    const Fields sequence(faults_, member, "pre_tokenizer", {"type", "pretokenizers"});
    const Json* const steps = sequence.require("pretokenizers", "an array");
    if (steps == nullptr) return;
    const std::string path = sequence.path("pretokenizers");
    if (!steps->is_array() || steps->empty()) {
      return faults_.add(path, "an array of at least one", describe(*steps));
    }
    for (size_t i = 0; i + 1 < steps->size() && faults_.ok(); ++i) {
      read_split((*steps)[i], path + "[" + std::to_string(i) + "]");
    }
    read_byte_level(steps->back(), path + "[" + std::to_string(steps->size() - 1) + "]", false);
  }

  // By itself it may cut text into words and put a space before it; at the end of a sequence it
  // only turns text into bytes.
  void read_byte_level(const Json& step, const std::string& path, bool is_alone) {
    if (!has_type(step, "ByteLevel")) return faults_.add(path, "the type 'ByteLevel'", found(step));
    const Fields fields(faults_, &step, path,
                        {"type", "add_prefix_space", "trim_offsets", "use_regex"});
    if (!is_alone) {
      expect(fields, "add_prefix_space", false, "as the text has been cut into words");
      fields.require("use_regex", "false (as the text has been cut into words)");
      expect(fields, "use_regex", false, "as the text has been cut into words");
      return;
    }
    add_prefix_ = fields.boolean("add_prefix_space", true);
    if (fields.boolean("use_regex", true)) add_pattern(SplitPattern::gpt2(), path);
  }

  void read_split(const Json& step, const std::string& path) {
    if (!has_type(step, "Split")) return faults_.add(path, "the type 'Split'", found(step));
    const Fields split(faults_, &step, path, {"type", "pattern", "behavior", "invert"});
    split.choice("behavior", std::array{Choice{"Isolated", 0}});
    expect(split, "invert", false, "what the pattern matches is a word");
    const Fields pattern = split.object("pattern", {"Regex"});
    const Json* const regex = pattern.require("Regex", "a string");
    if (regex == nullptr || !faults_.ok()) return;
    if (!regex->is_string()) {
      return faults_.add(pattern.path("Regex"), "a string", describe(*regex));
    }
    add_pattern(regex->get_ref<const std::string&>(), pattern.path("Regex"));
  }

  void add_pattern(std::string_view text, const std::string& path) {
    Result<SplitPattern> pattern = SplitPattern::compile(text);
    if (!pattern.ok()) return faults_.add(path, pattern.status().message());
    patterns_.push_back(std::move(*pattern));
  }

  const ByteAlphabet alphabet_;
  Faults faults_;
  const Fields root_;
  std::unordered_map<std::string, int32_t> values_;  // by token, as the file writes it
  std::unordered_set<std::string> added_;            // tokens of added_tokens
  std::optional<BytePairs> pairs_;
  LiteralTokens first_, second_;
  bool add_prefix_ = false;
  std::vector<SplitPattern> patterns_;
  std::unordered_map<std::string, int32_t> words_;
  std::vector<std::string> bytes_;
};

}  // namespace

Result<std::shared_ptr<const Tokenizer>> Tokenizer::parse(std::string_view json,
                                                          const std::string& file) {
  const Result<Json> tree = parse_json(json, file, kJsonLimits);
  if (!tree.ok()) return tree.status();
  return TokenizerFile(*tree, file).read();
}

}  // namespace runnel
