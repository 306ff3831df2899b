// OpenID provider of the cases: one person, a page with a link, and tokens signed by a key of its own.
//
//   node provider.mjs PORT
import { createHash, createSign, generateKeyPairSync, randomUUID } from "node:crypto";
import { createServer } from "node:http";

const issuer = `http://localhost:${process.argv[2]}`;
const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
const grants = new Map();
const person = { sub: "248289761001", preferred_username: "eva", roles: ["penstock-account"], account: "default" };

function idToken(grant) {
  const now = Math.floor(Date.now() / 1000);
  const claims = { iss: issuer, aud: grant.client_id, nonce: grant.nonce, iat: now, exp: now + 300, ...person };
  const part = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const message = `${part({ alg: "ES256", kid: "one" })}.${part(claims)}`;
  const signature = createSign("sha256").update(message).sign({ key: privateKey, dsaEncoding: "ieee-p1363" });
  return `${message}.${signature.toString("base64url")}`;
}

function exchange(form) {
  const grant = grants.get(form.get("code"));
  grants.delete(form.get("code"));
  const challenge = createHash("sha256").update(form.get("code_verifier") ?? "").digest("base64url");
  if (!grant || challenge !== grant.code_challenge || form.get("redirect_uri") !== grant.redirect_uri) return null;
  return { access_token: randomUUID(), token_type: "Bearer", id_token: idToken(grant) };
}

const page = (link, text) => `<!doctype html><html lang="en"><title>Example ID</title><a href="${link}">${text}</a></html>`;

createServer(async (request, answer) => {
  const url = new URL(request.url, issuer);
  const send = (status, kind, body) => answer.writeHead(status, { "content-type": kind }).end(body);
  const json = (status, value) => send(status, "application/json", JSON.stringify(value));
  if (url.pathname === "/.well-known/openid-configuration") {
    const endpoints = { authorization_endpoint: "authorize", token_endpoint: "token", jwks_uri: "keys", end_session_endpoint: "logout" };
    const urls = Object.fromEntries(Object.entries(endpoints).map(([name, path]) => [name, `${issuer}/${path}`]));
    json(200, { issuer, ...urls });
  } else if (url.pathname === "/keys") {
    json(200, { keys: [{ ...publicKey.export({ format: "jwk" }), kid: "one", use: "sig" }] });
  } else if (url.pathname === "/authorize") {
    const code = randomUUID();
    grants.set(code, Object.fromEntries(url.searchParams));
    const back = new URL(url.searchParams.get("redirect_uri"));
    back.search = new URLSearchParams({ code, state: url.searchParams.get("state") });
    send(200, "text/html", page(back.href.replaceAll("&", "&amp;"), "Continue as Eva"));
  } else if (url.pathname === "/token") {
    let body = "";
    for await (const piece of request) body += piece;
    const token = exchange(new URLSearchParams(body));
    json(token ? 200 : 400, token ?? { error: "invalid_grant" });
  } else if (url.pathname === "/logout") {
    send(200, "text/html", page(url.searchParams.get("post_logout_redirect_uri"), "Back"));
  } else if (url.pathname === "/favicon.ico") {
    send(200, "image/svg+xml", '<svg xmlns="http://www.w3.org/2000/svg"/>');
  } else {
    json(404, {});
  }
}).listen(Number(process.argv[2]), "127.0.0.1");
