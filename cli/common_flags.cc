#include "cli/common_flags.h"

#include <charconv>
#include <cstdlib>

#include "base/text.h"
#include "client/address.h"

namespace runnel {
namespace {

constexpr double kLongestSeconds = 1e7;
constexpr const char* kReaching = "Reaching the server";

// A variable of the environment; empty if it is not set.
std::string said(const char* variable) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? "" : text;
}

// A key on the command line replaces the key file of the environment, but not that of the command
// line. Flags are read in the order in which they are added, so --api-key is added first. Does not
// use from_environment(), which does not tell the two places apart.
void add_key(const Command& command, Target& server) {
  server.api_key = said("RUNNEL_API_KEY");
  server.api_key_file = said("RUNNEL_API_KEY_FILE");
  command
      .flag("--api-key", server.api_key,
            "The API key itself, which all users of this machine can see in ps; ignored if "
            "--api-key-file is given; RUNNEL_API_KEY in the environment")
      .clears(server.api_key_file)
      .in_group(kReaching);
  command
      .flag("--api-key-file", server.api_key_file,
            "File with the API key; RUNNEL_API_KEY_FILE in the environment")
      .in_group(kReaching);
}

}  // namespace

Flag add_server(const Command& command, Target& server) {
  // A command that also works without a server has no default address.
  const bool has_default = !server.address.empty();
  const std::string text = "Address of the server, host:port";
  const Flag address = command.flag(
      "--server", server.address, has_default ? text + "; RUNNEL_SERVER in the environment" : text);
  address.check(check_server).shows_default();
  // After shows_default(), because the manual page must be the same on every machine. Does not use
  // from_environment(): the flag would then count as given, and exclude other flags.
  const std::string elsewhere = said("RUNNEL_SERVER");
  if (!elsewhere.empty() && has_default) server.address = elsewhere;
  const auto word = [&](const char* flag, std::string& to, const char* variable, const char* what) {
    command.flag(flag, to, what).from_environment(variable).in_group(kReaching);
  };
  command
      .flag("--tls", server.tls,
            "Use TLS, and trust the authorities of this system, or those of --tls-ca")
      .from_environment("RUNNEL_TLS")
      .in_group(kReaching);
  word("--tls-ca", server.tls_ca, "RUNNEL_TLS_CA",
       "PEM file of the authorities to trust; implies --tls, as do the next three flags");
  word("--tls-cert", server.tls_cert, "RUNNEL_TLS_CERT",
       "PEM file of the client's certificate, if the server requires one");
  word("--tls-key", server.tls_key, "RUNNEL_TLS_KEY", "PEM file of the private key of --tls-cert");
  word("--tls-name", server.tls_name, "RUNNEL_TLS_NAME",
       "Name in the server's certificate, if it is not the host of --server");
  add_key(command, server);
  command
      .flag("--plaintext-key", server.plaintext_key,
            "Send the key to another machine even without TLS")
      .in_group(kReaching);
  return address;
}

void add_model(const Command& command, std::string& model) {
  command.flag("--model", model, "Name of the model, if the server has several")
      .from_environment("RUNNEL_MODEL");
}

void add_json(const Command& command, bool& json) {
  command.flag("--json", json, "Print one JSON object instead of text");
}

void add_timeout(const Command& command, double& timeout, const std::string& what) {
  command.flag("--timeout", timeout, "Seconds " + what).check(seconds_from(0.001)).shows_default();
}

void add_max_queue_time(const Command& command, std::optional<double>& seconds) {
  command
      .flag("--max-queue-time", seconds,
            "Seconds that a call may wait for a free state; 0: it is refused at once (default: the "
            "server decides)")
      .between(0.0, 3600.0);
}

std::string check_server(const std::string& text) { return check_server_address(text).message(); }

std::string check_seed(const std::string& text) {
  uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error == std::errc() && end == text.data() + text.size()) return "";
  return "a seed is a whole number from 0 to " + std::to_string(UINT64_MAX) + ", not " +
         quote(text, 40);
}

CheckWord seconds_from(double least) {
  return [least](const std::string& text) -> std::string {
    double seconds = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
    if (error == std::errc() && end == text.data() + text.size() && seconds >= least &&
        seconds <= kLongestSeconds) {
      return "";
    }
    return "expected seconds from " + fixed(least, least > 0 ? 3 : 0) + " to " +
           with_commas(static_cast<int64_t>(kLongestSeconds)) + ", not " + quote(text, 40);
  };
}

}  // namespace runnel
