# Reads calls as a JSON list on stdin and says for each what the official Standard Webhooks library says of it.
import json
import sys

from standardwebhooks import Webhook, WebhookVerificationError


def verdict(call):
    headers = {
        "webhook-id": call["id"],
        "webhook-timestamp": call["timestamp"],
        "webhook-signature": call["signature"],
    }
    try:
        Webhook(call["secret"]).verify(call["body"].encode(), headers, json_parse=False)
        return "verified"
    except WebhookVerificationError as error:
        return str(error)


json.dump([verdict(call) for call in json.load(sys.stdin)], sys.stdout)
