#include "models/text/load_tokenizer.h"

#include "base/file.h"
#include "base/limits.h"

namespace runnel {

Result<std::shared_ptr<const Tokenizer>> load_tokenizer(const std::string& directory) {
  const std::string json = directory + "/tokenizer.json";
  const std::string rwkv = directory + "/rwkv_vocab_v20230424.txt";
  const Result<std::string> text = read_file(json, kMaxTokenizerBytes);
  if (text.ok()) return Tokenizer::from_json(*text, json);
  if (text.status().code() != Code::kNotFound) return text.status();
  const Result<std::string> vocabulary = read_file(rwkv, kMaxTokenizerBytes);
  if (vocabulary.ok()) return Tokenizer::from_rwkv(*vocabulary, rwkv);
  if (vocabulary.status().code() != Code::kNotFound) return vocabulary.status();
  return not_found(text.status().message() + ", nor is there a rwkv_vocab_v20230424.txt");
}

}  // namespace runnel
