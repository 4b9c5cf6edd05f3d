// encode_texts DIRECTORY: reads a JSON string from each line of standard input, encodes it with the
// tokenizer of the directory and prints {"values": [...], "text": the text of these values}.
#include <iostream>
#include <string>

#include "base/json.h"
#include "base/utf8.h"
#include "models/text/load_tokenizer.h"

namespace runnel {
namespace {

std::string text_of(const Tokenizer& tokenizer, const std::vector<int32_t>& values) {
  Utf8Stream stream;
  std::string text;
  for (size_t i = 0; i < values.size(); ++i) {
    stream.add(tokenizer.bytes(values[i], i == 0), text);
  }
  stream.end(text);
  return text;
}

int run(const std::string& directory) {
  const auto tokenizer = load_tokenizer(directory);
  if (!tokenizer.ok()) {
    std::cerr << tokenizer.status().message() << "\n";
    return 1;
  }
  for (std::string line; std::getline(std::cin, line);) {
    const auto values = (*tokenizer)->encode(Json::parse(line).get<std::string>());
    if (!values.ok()) {
      std::cerr << values.status().message() << "\n";
      return 1;
    }
    std::cout << json_text({{"values", *values}, {"text", text_of(**tokenizer, *values)}}) << "\n";
  }
  return 0;
}

}  // namespace
}  // namespace runnel

int main(int argc, char** argv) {
  if (argc == 2) return runnel::run(argv[1]);
  std::cerr << "usage: encode_texts DIRECTORY < LINES\n";
  return 2;
}
