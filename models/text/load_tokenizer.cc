#include "models/text/load_tokenizer.h"

#include "base/file.h"
#include "base/limits.h"
#include "models/bundle/gguf.h"
#include "models/bundle/weight_file.h"
#include "models/text/gguf_vocabulary.h"

namespace runnel {
namespace {

Result<std::shared_ptr<const Tokenizer>> tokenizer_of_gguf(const std::string& path) {
  const auto file = WeightFile::open(path);
  if (!file.ok()) return file.status();
  const Result<GgufVocabulary> vocabulary = read_gguf_vocabulary(file->metadata(), path);
  if (!vocabulary.ok()) return vocabulary.status();
  if (vocabulary->tokenizer == nullptr) return not_found(path + ": no key tokenizer.ggml.model");
  return vocabulary->tokenizer;
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> load_tokenizer(const std::string& path) {
  if (is_gguf(path)) return tokenizer_of_gguf(path);
  const std::string json = path + "/tokenizer.json";
  const std::string rwkv = path + "/rwkv_vocab_v20230424.txt";
  const Result<std::string> text = read_file(json, kMaxTokenizerBytes);
  if (text.ok()) return Tokenizer::from_json(*text, json);
  if (text.status().code() != Code::kNotFound) return text.status();
  const Result<std::string> vocabulary = read_file(rwkv, kMaxTokenizerBytes);
  if (vocabulary.ok()) return Tokenizer::from_rwkv(*vocabulary, rwkv);
  if (vocabulary.status().code() != Code::kNotFound) return vocabulary.status();
  return not_found(text.status().message() + ", nor is there a rwkv_vocab_v20230424.txt");
}

}  // namespace runnel
