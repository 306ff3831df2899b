// Cases of the account holders' dashboard in a browser. Each case ends the run if it fails.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { chromium } from "playwright-core";
import { ask, check, choosePassword, inspectIntensity, inspectLanguage, inspectPages, passed, period, print, problems, violations, watch } from "./shared.mjs";

const { PENSTOCK_KEY: key, PENSTOCK_SCREENSHOTS: folder } = process.env;

const browser = await chromium.launch({ executablePath: process.env.PENSTOCK_CHROMIUM, args: ["--no-sandbox"] });
try {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
  const page = await context.newPage();
  watch(page);
  const root = `${new URL(process.env.PENSTOCK_HOLDER).origin}/dashboard/`;

  await check("an account holder chooses a password and is signed in", async () => {
    assert.equal(await ask(key, 4), 200);
    await choosePassword(page, process.env.PENSTOCK_HOLDER);
    assert.match(await page.locator("header").innerText(), /eve\s*\(account\)/);
  });
  const ownKey = key.slice("sk-svc-".length).slice(0, 16);
  const pages = ["", "keys", `keys/${ownKey}`, "playground", "usage", "usage?by=key", "statement", "invoice", `invoice?${period}`, "carbon", "batches", "files", "api", "api/post_v1_chat_completions", "api/schemas/ChatRequest"];
  await check("usage and the carbon report are downloaded as CSV", async () => {
    for (const [name, column] of [["usage", "day,model,requests"], ["carbon", "row,name,account"]]) {
      await page.goto(root + name);
      const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("link", { name: "CSV, decimal point" }).click()]);
      assert.match(file.suggestedFilename(), new RegExp(`^${name}-\\d{4}-\\d{2}-\\d{2}-.*\\.csv$`));
      assert.ok(readFileSync(await file.path(), "utf8").startsWith(column), name);
    }
  });
  await inspectPages(page, root, pages, "dashboard-");
  for (const language of [["de", "Deutsch"], ["fr", "Français"]]) {
    await check(`every page in ${language[1]}`, () => inspectLanguage(page, root, pages, language, "dashboard-"));
  }
  await check("the grid intensity is shown where the account's batches ran", async () => {
    assert.equal(await ask(key, 1, "llama-3.1-8b-instruct:batch"), 200);
    await inspectIntensity(page, `${root}batches`, 1);
  });
  for (const scripts of [true, false]) {
    await check(`a request of the playground has its quote and its cost, ${scripts ? "with" : "without"} scripts`, async () => {
      const storageState = await context.storageState();
      const own = await browser.newContext({ storageState, javaScriptEnabled: scripts });
      const player = await own.newPage();
      watch(player);
      const figure = (label) => player.locator(".tile", { has: player.locator("dt", { hasText: new RegExp(`^${label}$`) }) });
      await player.goto(`${root}playground`);
      await player.locator("select[name=key]").selectOption(ownKey);
      await player.locator("select[name=model]").selectOption("llama-3.1-8b-instruct");
      await player.locator("textarea[name=prompt]").fill("Say <b>hello</b>");
      await player.locator("input[name=max_tokens]").fill("60");
      assert.equal(await player.getByRole("button", { name: "Send" }).count(), 0, "the quote is shown first");
      await player.getByRole("button", { name: "Show the quote" }).click();
      for (const label of ["Expected cost", "Cost at most"]) assert.match(await figure(label).innerText(), /EUR/);
      assert.equal(await player.locator("h2", { hasText: "Answer" }).count(), 0);
      assert.equal(await player.locator("textarea[name=prompt]").inputValue(), "Say <b>hello</b>");
      await player.getByRole("button", { name: "Send" }).click();
      await player.locator("h2", { hasText: "Answer" }).waitFor();
      assert.match(await figure("Cost").innerText(), /EUR/);
      assert.match(await figure("Water").first().innerText(), /[lm]/);
      assert.ok((await player.locator(".prose").innerText()).length > 0);
      if (scripts) {
        assert.deepEqual(await violations(player), []);
        for (const [name, colorScheme, width] of [["light", "light", 1280], ["dark", "dark", 1280], ["narrow", "light", 390]]) {
          await player.emulateMedia({ colorScheme });
          await player.setViewportSize({ width, height: 800 });
          await player.screenshot({ path: `${folder}/dashboard-playground-answer-${name}.png`, fullPage: true });
        }
      }
      await player.locator("input[name=max_tokens]").fill("many");
      await player.getByRole("button", { name: "Show the quote" }).click();
      assert.match(await player.locator("label .error").innerText(), /whole number/);
      assert.equal(await player.locator("textarea[name=prompt]").inputValue(), "Say <b>hello</b>");
      await own.close();
    });
  }
  await check("an issued invoice prints on A4 with its number and total", async () => {
    const printer = await context.newPage();
    watch(printer);
    await printer.goto(`${root}invoice?${period}`);
    await printer.emulateMedia({ media: "print" });
    const text = await printer.locator("main").innerText();
    assert.match(text, /Invoice PS-\d{4}-000001, /);
    assert.match(text, /Total\s+\d+\.\d{2}/);
    for (const hidden of ["header", "footer", "form", ".screen", ".links"]) {
      for (const part of await printer.locator(hidden).all()) assert.ok(!(await part.isVisible()), hidden);
    }
    const short = await print(printer);
    writeFileSync(`${folder}/invoice.pdf`, short.pdf);
    // A long table: its rows are copied in the page.
    await printer.evaluate(() => {
      const body = document.querySelector("tbody");
      for (let left = 120; left > 0; left -= 1) body.append(document.querySelector("tbody tr").cloneNode(true));
    });
    const long = await print(printer);
    writeFileSync(`${folder}/invoice-long.pdf`, long.pdf);
    assert.ok(short.pages >= 1 && long.pages >= short.pages + 2, `${short.pages} and ${long.pages} pages`);
    const display = (selector) => printer.locator(selector).first().evaluate((part) => getComputedStyle(part).display);
    assert.deepEqual([await display(".running"), await display("thead")], ["table-header-group", "table-header-group"]);
    await printer.goto(`${root}statement`);
    await printer.emulateMedia({ media: "print" });
    assert.match(await printer.locator("main").innerText(), /Statement \d{4}-\d{2}, account default/);
    assert.ok((await print(printer)).pages >= 1);
    await printer.close();
  });
  await check("a key is created in the page, used, rotated, and revoked in the page", async () => {
    await page.setViewportSize({ width: 1280, height: 800 });
    await page.goto(`${root}keys`);
    const form = page.locator("form.fields", { hasText: "New key" });
    await form.locator("input[name=name]").fill("<b>own</b>");
    await form.locator("input[name=budget_per_month]").fill("5");
    await form.getByRole("button", { name: "Create" }).click();
    const secret = await page.locator("p[role=status] code").innerText();
    assert.match(secret, /^sk-svc-/);
    assert.equal(await ask(secret), 200);
    await page.getByRole("link", { name: "<b>own</b>" }).click();
    await page.locator("select[name=overlap_seconds]").selectOption("0");
    await page.getByRole("button", { name: "Rotate" }).click();
    await page.locator("p[role=status]", { hasText: "refused at once" }).waitFor();
    assert.equal(await ask(secret), 200);
    await page.getByRole("button", { name: "Rotate" }).click();
    const fresh = await page.locator("p[role=status] code").innerText();
    assert.equal(await ask(secret), 401);
    assert.equal(await ask(fresh), 200);
    await page.getByRole("button", { name: "Revoke" }).click();
    await page.locator("p[role=status]", { hasText: "cannot be undone" }).waitFor();
    await page.getByRole("button", { name: "Revoke" }).click();
    await page.locator("p[role=status]", { hasText: "was revoked" }).waitFor();
    assert.equal(await ask(fresh), 401);
    assert.deepEqual(await violations(page), []);
    await page.goto(`${root}keys`);
    const content = await page.content();
    assert.ok(!content.includes(secret) && !content.includes(fresh));
  });
  await check("a refused form keeps what was typed", async () => {
    const form = page.locator("form.fields", { hasText: "New key" });
    await form.locator("input[name=name]").fill("Kept");
    await form.locator("input[name=requests_per_minute]").fill("many");
    await form.getByRole("button", { name: "Create" }).click();
    const refused = page.locator("form.fields").first();
    assert.equal(await refused.locator("input[name=name]").inputValue(), "Kept");
    assert.match(await refused.locator(".error").innerText(), /whole number/);
    assert.deepEqual(await violations(page), []);
  });
  await check("a statement is saved as CSV", async () => {
    await page.goto(`${root}statement`);
    const saving = page.waitForEvent("download");
    await page.getByRole("link", { name: "CSV, semicolon and decimal comma" }).click();
    assert.match((await saving).suggestedFilename(), /^statement-\d{4}-\d{2}\.csv$/);
  });
  await check("a sign-out ends the session on the server", async () => {
    const state = await context.storageState();
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.waitForURL("**/dashboard/sign-in");
    assert.deepEqual(await violations(page), []);
    const old = await browser.newContext({ storageState: state });
    const again = await old.newPage();
    await again.goto(root);
    assert.ok(again.url().endsWith("/dashboard/sign-in"));
    await old.close();
  });
  await check("no script failed and no policy was violated", async () => assert.deepEqual(problems, []));
  console.log(`dashboard: ${passed} passed, 0 failed`);
} finally {
  await browser.close();
}
