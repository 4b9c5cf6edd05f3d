#include "models/text/gguf_vocabulary.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "base/json_fields.h"
#include "base/limits.h"
#include "base/text.h"
#include "base/utf8.h"
#include "models/text/split_pattern.h"

namespace runnel {
namespace {

constexpr const char* kTokens = "tokenizer.ggml.tokens";
constexpr const char* kTypes = "tokenizer.ggml.token_type";

// Unsigned, as JSON parsed from text has them.
std::vector<uint32_t> unsigned_of(const std::vector<int32_t>& values) {
  return {values.begin(), values.end()};
}

// How a file with this name in tokenizer.ggml.pre cuts text into words.
struct Split {
  std::string_view name;
  std::vector<const char*> steps;  // patterns, and kToLetters
  bool composes = false;           // normalizes the text to NFC first
  bool whole_words = false;        // a word that is a token is not merged
  bool begins = false;             // the begin token comes first by default
};

constexpr const char* kToLetters = nullptr;  // bytes become letters

// A name has the steps of the tokenizer.json files of the models that it names. `default` has
// llama.cpp's own steps.
const std::vector<Split>& splits() {
  static const char* const kGpt2 = SplitPattern::gpt2();
  constexpr const char* kLlama3 =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+)"
      R"([\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  constexpr const char* kQwen2 =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+)"
      R"([\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  constexpr const char* kQwen35 =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}])"
      R"(+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  constexpr const char* kTekken =
      R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
      R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}|)"
      R"( ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  constexpr const char* kDigit = R"(\p{N})";
  constexpr const char* kDigits = R"(\p{N}+)";
  constexpr const char* kThreeDigits = "[0-9][0-9][0-9]";
  constexpr const char* kSigns = R"([\p{P}$+<=>\^`|~]+)";
  constexpr const char* kFewerSigns = R"([\p{P}$+<=>\^|~]+)";
  const auto llama3 = [&](std::string_view name) {
    return Split{.name = name, .steps = {kLlama3, kToLetters}, .whole_words = true, .begins = true};
  };
  static const std::vector<Split> kSplits = {
      {.name = "default", .steps = {kFewerSigns, kGpt2, kDigits, kThreeDigits, kToLetters}},
      {.name = "gpt-2", .steps = {kGpt2, kToLetters}},
      {.name = "mpt", .steps = {kGpt2, kToLetters}, .composes = true},
      {.name = "olmo", .steps = {kGpt2, kToLetters}, .composes = true},
      {.name = "granite-docling", .steps = {kGpt2, kToLetters}},
      {.name = "refact", .steps = {kDigit, kGpt2, kToLetters}},
      {.name = "falcon", .steps = {kSigns, kGpt2, kToLetters, kDigits, kThreeDigits}},
      {.name = "dbrx", .steps = {kLlama3, kToLetters}},
      llama3("llama-bpe"),
      llama3("falcon-h1"),
      llama3("lfm2"),
      llama3("pixtral"),
      {.name = "tekken", .steps = {kTekken, kToLetters}, .whole_words = true, .begins = true},
      {.name = "qwen2", .steps = {kQwen2, kToLetters}, .composes = true},
      {.name = "qwen35", .steps = {kQwen35, kToLetters}, .composes = true}};
  return kSplits;
}

// The values of tokenizer.ggml.token_type.
enum TokenType : int64_t { kNormal = 1, kControl = 3, kUserDefined = 4, kUnused = 5 };

class Reader {
 public:
  Reader(const Json& metadata, const std::string& file)
      : metadata_(metadata), file_(file), faults_(file) {}

  Result<GgufVocabulary> read() {
    const Json* const model = find("tokenizer.ggml.model");
    if (model == nullptr || *model == "none" || *model == "no_vocab") return GgufVocabulary{};
    const bool is_rwkv = *model == "rwkv";
    if (!is_rwkv && *model != "gpt2") {
      faults_.add("tokenizer.ggml.model", "'rwkv' or 'gpt2', the models that are implemented",
                  describe(*model));
    }
    if (faults_.ok() && !is_rwkv) split_ = find_split();
    if (faults_.ok()) read_tokens();
    if (faults_.ok()) read_begin_and_end();
    if (!faults_.ok()) return faults_.status();
    auto tokenizer = is_rwkv ? make_rwkv() : make_gpt2();
    if (!tokenizer.ok()) return tokenizer.status();
    return GgufVocabulary{std::move(*tokenizer), std::ssize(*tokens_), std::move(eos_)};
  }

 private:
  const Json* find(const char* key) const {
    const auto member = metadata_.find(key);
    return member == metadata_.end() ? nullptr : &*member;
  }

  // Returns an array of strings; null, with a fault, if it is missing.
  const Json* strings(const char* key) {
    const Json* const list = find(key);
    const bool fits = list != nullptr && list->is_array() && !list->empty() &&
                      std::ranges::all_of(*list, [](const Json& item) { return item.is_string(); });
    if (fits) return list;
    faults_.add(key, "an array of strings", list == nullptr ? "no such key" : describe(*list));
    return nullptr;
  }

  void read_tokens() {
    tokens_ = strings(kTokens);
    if (tokens_ == nullptr) return;
    if (std::ssize(*tokens_) > kMaxVocabulary) {
      return faults_.add(kTokens, "at most " + std::to_string(kMaxVocabulary) + " tokens",
                         std::to_string(tokens_->size()));
    }
    types_ = find(kTypes);
    const bool fits =
        types_ == nullptr ||
        (types_->is_array() && types_->size() == tokens_->size() &&
         std::ranges::all_of(*types_, [](const Json& item) { return item.is_number_integer(); }));
    if (!fits) {
      faults_.add(kTypes,
                  "an integer for each of the " + std::to_string(tokens_->size()) + " tokens",
                  describe(*types_));
    }
  }

  int64_t type_of(size_t value) const {
    return types_ == nullptr ? int64_t{kNormal} : (*types_)[value].get<int64_t>();
  }

  const std::string& token(size_t value) const {
    return (*tokens_)[value].get_ref<const std::string&>();
  }

  // The value of a key; -1 if the key is absent.
  int32_t value_of(const char* key) {
    const Json* const found = find(key);
    if (found == nullptr) return -1;
    if (found->is_number_integer() && *found >= 0 && *found < tokens_->size()) {
      return found->get<int32_t>();
    }
    faults_.add(key, "a value below " + std::to_string(tokens_->size()), describe(*found));
    return -1;
  }

  bool is_set(const char* key, bool otherwise) {
    const Json* const found = find(key);
    if (found == nullptr) return otherwise;
    if (!found->is_boolean()) faults_.add(key, "true or false", describe(*found));
    return *found == true;
  }

  // If the file asks for a value before or after each text, it must name that value.
  void read_begin_and_end() {
    const int32_t bos = value_of("tokenizer.ggml.bos_token_id");
    const int32_t eos = value_of("tokenizer.ggml.eos_token_id");
    for (const int32_t value :
         {eos, value_of("tokenizer.ggml.eot_token_id"), value_of("tokenizer.ggml.eom_token_id")}) {
      if (value >= 0) eos_.push_back(value);
    }
    const bool begins = bos >= 0 && split_ != nullptr && split_->begins;
    require_value("tokenizer.ggml.add_bos_token", "tokenizer.ggml.bos_token_id", bos, begins,
                  begin_);
    require_value("tokenizer.ggml.add_eos_token", "tokenizer.ggml.eos_token_id", eos, false, end_);
  }

  // `otherwise` is used if the file does not say.
  void require_value(const char* key, const char* value_key, int32_t value, bool otherwise,
                     std::vector<int32_t>& values) {
    if (!is_set(key, otherwise)) return;
    if (value < 0) faults_.add(value_key, std::string("a value, as ") + key + " is true", "none");
    values.push_back(value);
  }

  // Tokens are bytes in the notation of Python's repr().
  Result<std::shared_ptr<const Tokenizer>> make_rwkv() {
    std::vector<std::pair<int32_t, std::string_view>> words;
    for (size_t value = 0; value < tokens_->size(); ++value) {
      if (type_of(value) != kNormal) continue;
      words.emplace_back(static_cast<int32_t>(value), token(value));
    }
    return Tokenizer::from_rwkv_tokens(words, begin_, file_ + ": " + kTokens);
  }

  // Returns null, with a fault, if no split has the name.
  const Split* find_split() {
    constexpr const char* kPre = "tokenizer.ggml.pre";
    const Json* const name = find(kPre);
    std::vector<std::string_view> known;
    for (const Split& split : splits()) {
      if (name != nullptr && *name == std::string(split.name)) return &split;
      known.push_back(split.name);
    }
    faults_.add(kPre, quoted_choices(known) + ", the splits that are implemented",
                name == nullptr ? "no such key" : describe(*name));
    return nullptr;
  }

  // In the form of tokenizer.json.
  Json pre_tokenizer() const {
    Json steps = Json::array();
    for (const char* const step : split_->steps) {
      if (step == kToLetters) {
        steps.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}});
      } else {
        steps.push_back({{"type", "Split"},
                         {"pattern", {{"Regex", step}}},
                         {"behavior", "Isolated"},
                         {"invert", false}});
      }
    }
    return {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
  }

  Result<std::shared_ptr<const Tokenizer>> make_gpt2() {
    Json tree = {{"pre_tokenizer", pre_tokenizer()},
                 {"decoder", {{"type", "ByteLevel"}}},
                 {"post_processor", post_processor()},
                 {"added_tokens", Json::array()},
                 {"model", {{"type", "BPE"}, {"ignore_merges", split_->whole_words}}}};
    if (split_->composes) tree["normalizer"]["type"] = "NFC";
    Json vocabulary = Json::object();
    for (size_t value = 0; faults_.ok() && value < tokens_->size(); ++value) {
      add_gpt2(value, vocabulary, tree["added_tokens"]);
    }
    const Json* const merges = faults_.ok() ? strings("tokenizer.ggml.merges") : nullptr;
    if (merges == nullptr) return faults_.status();
    tree["model"]["vocab"] = std::move(vocabulary);
    tree["model"]["merges"] = *merges;
    return Tokenizer::from_tree(tree, file_ + ": tokenizer.ggml, as a tokenizer.json");
  }

  void add_gpt2(size_t value, Json& vocabulary, Json& added) {
    const int64_t type = type_of(value);
    if (type == kUnused) return;
    const std::string& text = token(value);
    const std::string path = std::string(kTokens) + "[" + std::to_string(value) + "]";
    if (valid_utf8_prefix(text) != text.size()) return faults_.add(path, "UTF-8", quote(text));
    if (type == kControl || type == kUserDefined) {
      added.push_back({{"id", value}, {"content", text}, {"special", type == kControl}});
    } else if (!vocabulary.emplace(text, value).second) {
      faults_.add(path, "a token of its own", quote(text) + " a second time");
    }
  }

  // In the form of tokenizer.json.
  Json post_processor() const {
    if (begin_.empty() && end_.empty()) return nullptr;
    Json single = Json::array();
    if (!begin_.empty()) single.push_back({{"SpecialToken", {{"id", "begin"}}}});
    single.push_back({{"Sequence", {{"id", "A"}}}});
    if (!end_.empty()) single.push_back({{"SpecialToken", {{"id", "end"}}}});
    return {{"type", "TemplateProcessing"},
            {"single", std::move(single)},
            {"special_tokens",
             {{"begin", {{"ids", unsigned_of(begin_)}}}, {"end", {{"ids", unsigned_of(end_)}}}}}};
  }

  const Json& metadata_;
  const std::string& file_;
  Faults faults_;
  const Split* split_ = nullptr;  // used by the model gpt2
  const Json* tokens_ = nullptr;
  const Json* types_ = nullptr;  // null: all are normal
  std::vector<int32_t> begin_, end_, eos_;
};

}  // namespace

Result<GgufVocabulary> read_gguf_vocabulary(const Json& metadata, const std::string& file) {
  return Reader(metadata, file).read();
}

}  // namespace runnel
