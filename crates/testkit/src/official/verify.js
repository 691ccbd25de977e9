// Reads calls as a JSON list on stdin and says for each what the official Standard Webhooks library says of it.
// The library does not verify `v1a` yet: calls with a public key are checked by Node's own ed25519 instead.
const crypto = require("node:crypto");
const { Webhook, WebhookVerificationError } = require("standardwebhooks");

// What stands before 32 bytes of key in the usual encoding of an ed25519 public key.
const SPKI_PREFIX = Buffer.from("302a300506032b6570032100", "hex");

function verifyPublic(call) {
  const bytes = Buffer.from(call.public_key.replace(/^whpk_/, ""), "base64");
  const key = crypto.createPublicKey({ key: Buffer.concat([SPKI_PREFIX, bytes]), format: "der", type: "spki" });
  const content = Buffer.from(`${call.id}.${call.timestamp}.${call.body}`);
  const isOurs = call.signature
    .split(" ")
    .filter((part) => part.startsWith("v1a,"))
    .some((part) => crypto.verify(null, content, key, Buffer.from(part.slice(4), "base64")));
  return isOurs ? "verified" : "No matching signature found";
}

function verdict(call) {
  if (call.public_key) return verifyPublic(call);
  const headers = {
    "webhook-id": call.id,
    "webhook-timestamp": call.timestamp,
    "webhook-signature": call.signature,
  };
  try {
    new Webhook(call.secret).verify(call.body, headers, { jsonParse: false });
    return "verified";
  } catch (error) {
    if (error instanceof WebhookVerificationError) return error.message;
    throw error;
  }
}

const calls = JSON.parse(require("node:fs").readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(calls.map(verdict)));
