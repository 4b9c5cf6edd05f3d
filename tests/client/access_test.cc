#include "client/access.h"

#include <gmock/gmock.h>

#include "client/address.h"
#include "tests/base/certificates.h"
#include "tests/base/test_files.h"

namespace runnel {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kElsewhere = "models.example.com:50051";
constexpr const char* kSecret = "0123456789abcdefsecret";

std::string error_of(const Target& target) { return read_access(target).status().message(); }

TEST(IsLoopback, IsTrueOnlyForThisMachine) {
  for (const char* own :
       {"127.0.0.1:1",          "127.9.9.9:1",      "127.1:1",
        "localhost:1",          "LocalHost.:1",     "[::1]:1",
        "[::ffff:127.0.0.1]:1", "unix:/run/a",      "unix-abstract:a",
        "dns:localhost:1",      "dns:localhost",    "dns:///localhost:1",
        "dns:///127.0.0.1:1",   "dns:///[::1]:1",   "dns://10.0.0.1/127.0.0.1:1",
        "ipv4:127.0.0.1:1",     "ipv4:127.0.0.1",   "ipv4:127.0.0.1:1,127.0.0.2:2",
        "ipv6:[::1]:1",         "ipv6:%5B::1%5d:1", "ipv6:::1"}) {
    EXPECT_TRUE(is_loopback(own)) << own;
  }
  for (const char* other :
       {"localhost.example.com:1", "127.example.com:1", "unix.example.com:1", "10.0.0.1:1",
        "127.0.0.1 a:1", "0.0.0.0:1", "[::2]:1", "dns://10.0.0.1/localhost:1",
        "ipv4:127.0.0.1:1,10.0.0.1:1", "dns:example.com:1", "dns:///localhost.example.com:1",
        "dns:", "dns://", "dns:///", "ipv4:", "ipv6:[::2]:1", "ipv6:[::1]:1,[::2]:1"}) {
    EXPECT_FALSE(is_loopback(other)) << other;
  }
}

TEST(HostPortOf, IsTheSameInEveryForm) {
  for (const char* address :
       {"a.example:1", "dns:a.example:1", "dns:///a.example:1", "dns://10.0.0.1/a.example:1"}) {
    const std::optional<HostPort> place = host_port_of(address);
    ASSERT_TRUE(place) << address;
    EXPECT_EQ(place->host + " " + place->port, "a.example 1") << address;
  }
  EXPECT_EQ(host_port_of("[::1]:1")->host, "::1");
  EXPECT_EQ(host_port_of("ipv6:%5B::1%5D:1")->host, "::1");
  EXPECT_EQ(host_port_of("dns:a.example")->port, "443");
  for (const char* none : {"unix:/run/a", "ipv4:10.0.0.1:1,10.0.0.2:1"}) {
    EXPECT_FALSE(host_port_of(none)) << none;
  }
}

TEST(Access, AccessToThisMachineIsPlainAndMayHaveAKey) {
  const Result<Access> access = read_access({.api_key = kSecret});
  ASSERT_TRUE(access.ok());
  EXPECT_FALSE(access->tls);
  EXPECT_EQ(access->key, kSecret);
}

TEST(Access, AKeyIsSentToAnotherMachineOnlyByTls) {
  Target target = {.address = kElsewhere, .api_key = kSecret};
  EXPECT_EQ(read_access(target).status().code(), Code::kInvalidArgument);
  EXPECT_THAT(error_of(target), AllOf(HasSubstr("in the clear"), HasSubstr("--plaintext-key"),
                                      HasSubstr(kElsewhere), Not(HasSubstr(kSecret))));
  target.plaintext_key = true;
  EXPECT_EQ(error_of(target), "");
  target.plaintext_key = false;
  const TestFolder folder;
  target.tls_ca = folder.write("ca.pem", TestAuthority("an authority").pem());
  const Result<Access> access = read_access(target);
  ASSERT_TRUE(access.ok()) << access.status().message();
  EXPECT_TRUE(access->tls);
  EXPECT_EQ(access->name, "models.example.com");
}

TEST(Access, AKeyInAFileTakesPrecedence) {
  const TestFolder folder;
  const std::string file = folder.write("key", std::string(kSecret) + "\n");
  EXPECT_EQ(read_access({.api_key = "other", .api_key_file = file})->key, kSecret);
  EXPECT_THAT(error_of({.api_key_file = folder.write("empty", "\n")}), HasSubstr("has no key"));
  EXPECT_THAT(error_of({.api_key_file = folder.path("none")}), HasSubstr("none"));
}

TEST(Access, AnInvalidKeyIsRefusedWithoutShowingIt) {
  for (const std::string& key : {std::string("a b-secret"), std::string("secret\nx"),
                                 std::string("secret\xc3\xa4"), std::string(5000, 's')}) {
    EXPECT_THAT(error_of({.api_key = key}),
                AllOf(HasSubstr("the key is not one"), Not(HasSubstr("secret"))));
  }
}

TEST(Access, FilesForTlsMustBeGood) {
  const TestFolder folder;
  const TestAuthority authority("an authority");
  const PemPair own = authority.issue("own");
  const std::string ca = folder.write("ca.pem", authority.pem());
  const std::string certificate = folder.write("cert.pem", own.certificate);
  const std::string key = folder.write("key.pem", own.key);
  EXPECT_EQ(error_of({.tls_ca = ca, .tls_cert = certificate, .tls_key = key}), "");
  EXPECT_THAT(error_of({.tls_ca = ca, .tls_cert = certificate}), HasSubstr("go together"));
  EXPECT_THAT(error_of({.tls_ca = key}), HasSubstr("key.pem has no certificate"));
  EXPECT_THAT(error_of({.tls_ca = ca, .tls_cert = certificate, .tls_key = certificate}),
              HasSubstr("has no private key"));
  EXPECT_THAT(error_of({.address = "https://a:1"}), HasSubstr("with --tls"));
}

}  // namespace
}  // namespace runnel
