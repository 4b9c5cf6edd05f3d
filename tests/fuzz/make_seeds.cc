// Writes seeds for the fuzzers: make_seeds DIRECTORY makes a corpus for each fuzzer in
// DIRECTORY/json, DIRECTORY/spec and so on, and a dictionary next to each corpus.
#include <cstdio>
#include <filesystem>
#include <string>

#include "tests/fuzz/answer_properties.h"
#include "tests/fuzz/chat_properties.h"
#include "tests/fuzz/properties.h"
#include "tests/fuzz/published_properties.h"
#include "tests/fuzz/request_properties.h"
#include "tests/fuzz/resp_properties.h"
#include "tests/fuzz/template_properties.h"
#include "tests/models/bundle/bundle_writer.h"

namespace runnel {
namespace {

// A dictionary for libFuzzer: one quoted word per line.
std::string dictionary(std::span<const std::string_view> words) {
  std::string text;
  for (const std::string_view word : words) {
    text += '"';
    for (const char c : word) {
      char escaped[5];
      std::snprintf(escaped, sizeof(escaped), "\\x%02x", static_cast<unsigned char>(c));
      text += escaped;
    }
    text += "\"\n";
  }
  return text;
}

void write_corpus(const std::string& directory, const std::vector<std::string>& seeds,
                  std::span<const std::string_view> words) {
  std::filesystem::create_directories(directory);
  for (size_t i = 0; i < seeds.size(); ++i) {
    write_file(directory + "/seed" + std::to_string(i), seeds[i]);
  }
  write_file(directory + ".dict", dictionary(words));
}

int run(const std::string& directory) {
  write_corpus(directory + "/answer", answer_seeds(), answer_words());
  write_corpus(directory + "/chat", chat_seeds(), chat_words());
  write_corpus(directory + "/completion", completion_seeds(), completion_words());
  write_corpus(directory + "/gguf", gguf_seeds(), gguf_words());
  write_corpus(directory + "/json", json_seeds(), spec_words());
  write_corpus(directory + "/keys", key_seeds(), key_words());
  write_corpus(directory + "/resp", reply_seeds(), reply_words());
  write_corpus(directory + "/response", response_seeds(), chat_words());
  write_corpus(directory + "/spec", spec_seeds(), spec_words());
  write_corpus(directory + "/state", state_seeds(), state_words());
  write_corpus(directory + "/template", template_seeds(), template_words());
  write_corpus(directory + "/tokenizer", tokenizer_seeds(), tokenizer_words());
  write_corpus(directory + "/vocabulary", vocabulary_seeds(), vocabulary_words());
  write_corpus(directory + "/published", published_seeds(), published_words());
  write_corpus(directory + "/weight_index", weight_index_seeds(), weight_index_words());
  std::vector<std::string> files;
  for (const std::string& file : safetensors_seeds()) {
    const size_t header_end = file.rfind('}') + 1;  // the seeds have only zeros as data
    files.push_back(file.substr(8, header_end - 8) + std::string(1, '\0') +
                    file.substr(header_end));
  }
  write_corpus(directory + "/safetensors", files, safetensors_words());
  return 0;
}

}  // namespace
}  // namespace runnel

int main(int argc, char** argv) {
  if (argc == 2) return runnel::run(argv[1]);
  std::fprintf(stderr, "usage: make_seeds DIRECTORY\n");
  return 2;
}
