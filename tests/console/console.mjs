// Cases of the console in a browser. Each case ends the run if it fails.
import assert from "node:assert/strict";
import { chromium } from "playwright-core";
import { ask, route, stream, check, choosePassword, inspectIntensity, inspectLanguage, inspectPages, passed, period, problems, violations, watch } from "./shared.mjs";

const { PENSTOCK_KEY: key, PENSTOCK_SCREENSHOTS: folder } = process.env;
const PAGES = ["", "providers", "routing", "routing?model=llama-3.1-8b-instruct&flavor=eco&countries=fr&prompt_tokens=5000", "latency", "latency?by=provider", "usage", "accounts", "accounts/default",
  "accounts/default/usage", "accounts/default/invoice", `accounts/default/invoice?${period}`, "ledger", "carbon", "batches", "files", "configuration", "audit", "users", "users/vic", "api", "api/post_v1_chat_completions", "api/get_v1_models", "api/schemas/ChatMessage", "api/schemas/Model"];

const browser = await chromium.launch({ executablePath: process.env.PENSTOCK_CHROMIUM, args: ["--no-sandbox"] });
try {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
  const page = await context.newPage();
  watch(page);
  const root = `${new URL(process.env.PENSTOCK_INVITATION).origin}/console/`;

  await check("requests are answered", async () => {
    assert.equal(await ask(key, 12), 200);
    assert.equal(await ask(key, 5, "llama-3.1-8b-instruct:batch"), 200);
    for (let count = 0; count < 6; count += 1) assert.match(await stream(key), /\[DONE\]/);
  });
  await check("an invited person chooses a password and is signed in", async () => {
    await choosePassword(page, process.env.PENSTOCK_INVITATION);
    assert.match(await page.locator("header").innerText(), /ada\s*\(admin\)/);
  });
  await check("a refused password is explained beside its field", async () => {
    const other = await (await browser.newContext()).newPage();
    await other.goto(process.env.PENSTOCK_VIEWER);
    await other.locator("input[name=password]").fill("short");
    await other.locator("input[name=again]").fill("short");
    await other.getByRole("button", { name: "Save and sign in" }).click();
    assert.match(await other.locator("label .error").innerText(), /12 characters/);
    await other.context().close();
  });
  await inspectPages(page, root, PAGES, "");
  for (const language of [["de", "Deutsch"], ["fr", "Français"]]) {
    await check(`every page in ${language[1]}`, () => inspectLanguage(page, root, PAGES, language, ""));
  }
  await check("the grid intensity is shown beside the requests of batches", async () => {
    await page.setViewportSize({ width: 1280, height: 800 });
    await inspectIntensity(page, `${root}batches`, 3);
    for (const scheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme: scheme });
      await page.screenshot({ path: `${folder}/batches-table-${scheme}.png`, fullPage: true });
    }
    await page.goto(`${root}providers`);
    const cells = await page.locator("tr", { hasText: "sim-paris" }).first().locator("td").allTextContents();
    assert.ok(cells.some((cell) => /^\d+\s*g\/kWh$/.test(cell.trim())) && cells.some((cell) => cell.includes("usual at this hour")), cells.join("; "));
    assert.match(await page.locator("tr", { hasText: "sim-warsaw" }).first().innerText(), /mean of 2025/);
  });
  await check("routing is explained, and a past request shows its attempts", async () => {
    const [chosen, id] = await route(key, "llama-3.1-8b-instruct:eco");
    await page.goto(`${root}routing?model=llama-3.1-8b-instruct&flavor=eco`);
    assert.match(await page.locator("p[role=status]").first().innerText(), new RegExp(`(^|: |, )${chosen}\\b`));
    await page.locator("input[name=request]").fill(id);
    await page.getByRole("button", { name: "Find" }).click();
    assert.match(await page.locator("table", { hasText: "Request id" }).innerText(), new RegExp(id));
    await page.locator("select[name=flavor]").selectOption("price");
    await page.locator("input[name=countries]").fill("France");
    await page.getByRole("button", { name: "Explain" }).click();
    const described = await page.locator("input[name=countries]").getAttribute("aria-describedby");
    assert.equal(described, "error-countries");
    assert.deepEqual(await violations(page), []);
  });
  await check("the time to the first token has a plot and a table", async () => {
    await page.goto(`${root}latency?by=provider`);
    assert.ok(await page.locator("polyline.line").count() > 0);
    assert.match(await page.locator(".plot[role=img]").getAttribute("aria-label"), /Median time to first token/);
  });
  await check("an account is limited, suspended and resumed in the page, and a role is changed", async () => {
    await page.goto(`${root}accounts/default`);
    const form = page.locator("form.fields", { hasText: "Name and limits" });
    await form.locator("input[name=concurrent]").fill("many");
    await form.getByRole("button", { name: "Save" }).click();
    assert.equal(await page.locator("form.fields", { hasText: "Name and limits" }).locator("input[name=concurrent]").inputValue(), "many");
    assert.deepEqual(await violations(page), []);
    await page.getByRole("button", { name: "Suspend", exact: true }).click();
    await page.getByRole("button", { name: "Suspend", exact: true }).click();
    await page.locator("p[role=status]", { hasText: "is suspended" }).waitFor();
    assert.equal(await ask(key), 401);
    await page.getByRole("button", { name: "Resume", exact: true }).click();
    await page.locator("p[role=status]", { hasText: "is active" }).waitFor();
    assert.equal(await ask(key), 200);
    await page.goto(`${root}users/vic`);
    await page.getByRole("button", { name: "Save", exact: true }).click();
    await page.locator("p[role=status]", { hasText: "has the role viewer" }).waitFor();
  });
  await check("the overview is updated by itself, by events", async () => {
    await page.setViewportSize({ width: 1280, height: 800 });
    const events = page.waitForRequest((request) => request.resourceType() === "eventsource");
    await page.goto(root);
    assert.equal(new URL((await events).url()).pathname, "/console/events");
    const figure = () => page.locator(".tile", { hasText: "Requests, 24 hours" }).locator("dd").innerText();
    const before = await figure();
    await ask(key, 3);
    // `waitForFunction` evaluates text in the page, which the policy forbids.
    for (let left = 100; (await figure()) === before; left -= 1) {
      assert.ok(left > 0, `the figure is still ${before}`);
      await page.waitForTimeout(200);
    }
  });
  await check("a lost contact is reported, and ends by itself", async () => {
    const fresh = await browser.newContext({ storageState: await context.storageState() });
    for (const name of ["", "providers"]) {
      const visitor = await fresh.newPage();
      await visitor.goto(root + name);
      const lost = visitor.locator("#lost", { hasText: /No contact with the gateway since \d\d:\d\d:\d\d UTC/ });
      await visitor.locator("#updated", { hasText: /Updated \d\d:\d\d:\d\d UTC/ }).waitFor();
      // A proxy answers for a gateway that restarts.
      await fresh.route(`${root}**`, (route) => route.fulfill({ status: 502, body: "" }));
      await visitor.evaluate(() => document.getElementById("live").dispatchEvent(new Event("refresh")));
      await lost.waitFor();
      assert.deepEqual(await violations(visitor), []);
      await visitor.screenshot({ path: `${folder}/lost-${name || "overview"}.png` });
      await fresh.unrouteAll();
      await lost.waitFor({ state: "hidden", timeout: 30_000 });
      await visitor.close();
    }
    // A stream that ends with an error status is opened again.
    const visitor = await fresh.newPage();
    let refused = 0;
    await visitor.route("**/console/events", (route) => ((refused += 1) < 3 ? route.fulfill({ status: 502, body: "" }) : route.continue()));
    const opened = visitor.waitForResponse((answer) => answer.url().endsWith("/events") && answer.status() === 200);
    await visitor.goto(root);
    await opened;
    await fresh.close();
  });
  await check("an ended session leads a live page to the sign-in form", async () => {
    const fresh = await browser.newContext({ storageState: await context.storageState() });
    const visitor = await fresh.newPage();
    await visitor.goto(`${root}providers`);
    await fresh.clearCookies();
    await visitor.waitForURL("**/console/sign-in**", { timeout: 15_000 });
    assert.equal(await visitor.locator("nav").count(), 0);
    await fresh.close();
  });
  await check("a page has at most 100 KB with everything", async () => {
    for (const name of ["", "routing", "latency", "carbon", "api", "api/post_v1_chat_completions", "usage", "usage?by=location", "accounts/default", "audit"]) {
      const fresh = await browser.newContext({ storageState: await context.storageState() });
      const visitor = await fresh.newPage();
      let bytes = 0;
      const session = await fresh.newCDPSession(visitor);
      await session.send("Network.enable");
      session.on("Network.loadingFinished", (event) => { bytes += event.encodedDataLength; });
      await visitor.goto(root + name, { waitUntil: "load" });
      await visitor.waitForTimeout(500);
      assert.ok(bytes > 1_000 && bytes <= 100_000, `${name}: ${bytes} bytes`);
      await fresh.close();
    }
  });
  await check("a key is created in the page, used, and revoked in the page", async () => {
    await page.goto(`${root}accounts/default`);
    const form = page.locator("form.fields", { hasText: "New key" });
    await form.locator("input[name=name]").fill("<b>browser</b>");
    await form.getByRole("button", { name: "Create" }).click();
    const secret = await page.locator("p[role=status] code").innerText();
    assert.match(secret, /^sk-svc-/);
    assert.equal(await ask(secret), 200);
    const row = page.locator("tr", { hasText: "<b>browser</b>" });
    // A reload sends the form again, which creates no second key.
    await page.reload();
    await page.locator("p[role=status]", { hasText: "was sent already" }).waitFor();
    assert.equal(await row.count(), 1);
    await row.getByRole("button", { name: "Revoke" }).click();
    await page.locator("p[role=status]", { hasText: "Revoke the key <b>browser</b>" }).waitFor();
    assert.deepEqual(await violations(page), []);
    await page.getByRole("link", { name: "Back without a change" }).click();
    assert.equal(await ask(secret), 200);
    await row.getByRole("button", { name: "Revoke" }).click();
    await page.getByRole("button", { name: "Revoke", exact: true }).click();
    await page.locator("p[role=status]", { hasText: "was revoked" }).waitFor();
    assert.equal(await ask(secret), 401);
    await page.reload();
    assert.equal(await page.locator("p[role=status]", { hasText: "was revoked" }).count(), 0, "a message is shown once");
    await page.goto(`${root}accounts/default`);
    assert.ok(!(await page.content()).includes(secret));
  });
  await check("an invoice is issued in the page", async () => {
    await page.goto(`${root}accounts/default/invoice?from=2026-01-01&to=2026-01-31`);
    assert.equal(await page.getByRole("button", { name: "Issue with the next number" }).count(), 0, "nothing was charged");
    await page.goto(`${root}accounts/default/invoice?${period}`);
    await page.getByRole("button", { name: "Issue with the next number" }).click();
    await page.locator("p[role=status]", { hasText: "An issued invoice never changes" }).waitFor();
    await page.getByRole("button", { name: "Issue with the next number" }).click();
    await page.locator("p[role=status]", { hasText: /The invoice PS-\d{4}-000001 was issued/ }).waitFor();
    assert.deepEqual(await violations(page), []);
  });
  await check("a refused form keeps what was typed", async () => {
    await page.goto(`${root}accounts`);
    await page.locator("input[name=id]").fill("no/such id");
    await page.locator("input[name=name]").fill("Kept");
    await page.getByRole("button", { name: "Create" }).click();
    const form = page.locator("form.fields");
    assert.equal(await form.count(), 1, "the form is there once");
    assert.equal(await form.locator("input[name=id]").inputValue(), "no/such id");
    assert.equal(await form.locator("input[name=name]").inputValue(), "Kept");
    assert.match(await form.locator(".error").innerText(), /Enter 1 to 64 letters/);
    assert.equal(await page.evaluate(() => document.activeElement.name), "id");
    const described = await form.locator("input[name=id]").getAttribute("aria-describedby");
    assert.match(await page.locator(`#${described}`).innerText(), /Enter 1 to 64 letters/);
    assert.deepEqual(await violations(page), []);
  });
  await check("the last administrator stays one, and a message follows the language", async () => {
    await page.goto(`${root}users`);
    await page.locator("tr", { hasText: "ada" }).getByRole("button", { name: "Disable" }).click();
    await page.getByRole("button", { name: "Disable", exact: true }).click();
    await page.locator("p[role=status]", { hasText: "the last active administrator" }).waitFor();
  });
  await check("a page of another site cannot frame or post to the console", async () => {
    const evil = await browser.newPage();
    const action = `${root}accounts`;
    await evil.setContent(`<iframe src="${root}"></iframe><form method=post action="${action}"><input name=id value=evil></form>`);
    const posted = evil.waitForNavigation();
    await evil.evaluate(() => document.forms[0].submit());
    assert.equal((await posted).status(), 403);
    await evil.close();
  });
  await check("a sign-out ends the session on the server", async () => {
    const state = await context.storageState();
    await page.goto(root);
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.waitForURL("**/console/sign-in");
    assert.deepEqual(await violations(page), []);
    await page.screenshot({ path: `${folder}/sign-in.png` });
    const old = await browser.newContext({ storageState: state });
    const again = await old.newPage();
    await again.goto(root);
    assert.ok(again.url().endsWith("/console/sign-in"));
    await old.close();
  });
  await check("a viewer sees no money and no accounts", async () => {
    const visitor = await (await browser.newContext()).newPage();
    watch(visitor);
    await choosePassword(visitor, process.env.PENSTOCK_VIEWER);
    assert.ok(!(await visitor.content()).includes("EUR"));
    await visitor.goto(`${root}usage`);
    assert.ok(!(await visitor.content()).includes("EUR"));
    assert.equal((await visitor.goto(`${root}accounts`)).status(), 403);
    assert.deepEqual(await violations(visitor), []);
  });
  await check("no script failed and no policy was violated", async () => assert.deepEqual(problems, []));
  console.log(`console: ${passed} passed, 0 failed`);
} finally {
  await browser.close();
}
