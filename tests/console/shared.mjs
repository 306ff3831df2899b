// Helpers of both sites' cases.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const { PENSTOCK_URL: url, PENSTOCK_SCREENSHOTS: folder } = process.env;
const PASSWORD = "correct horse battery";

export const problems = [];
export let passed = 0;

export async function check(name, work) {
  await work();
  passed += 1;
  console.log(`ok ${name}`);
}

/** Reports console errors, failed scripts, and violations of the content security policy. */
export function watch(page) {
  page.on("console", (message) => {
    // The browser reports the status of a page that is a refusal; every other file has to be there.
    const isRefusal = message.text().includes("status of 4") && message.location().url === page.url();
    if (message.type() === "error" && !isRefusal) problems.push(`${message.text()} ${message.location().url}`);
  });
  page.on("pageerror", (error) => problems.push(String(error)));
}

const day = (ago) => new Date(Date.now() - ago * 86_400_000).toISOString().slice(0, 10);
/** Query of a period of the demo's history that has ended. */
export const period = `from=${day(6)}&to=${day(2)}`;

/** Checks that no column is out of sight, and that the texts of plots are readable. */
async function inspectLayout(page, name) {
  // The values of plots, which are folded, may be wider.
  const hidden = await page.evaluate(() => [...document.querySelectorAll(".scroll:not(details .scroll)")]
    .filter((part) => part.clientWidth > 0 && part.scrollWidth > part.clientWidth + 1)
    .map((part) => `${part.getAttribute("aria-label")}: ${part.scrollWidth} > ${part.clientWidth}`));
  assert.deepEqual(hidden, [], name);
  const sizes = await page.evaluate(() => [...document.querySelectorAll("svg text")].filter((text) => text.getBoundingClientRect().width > 0)
    .map((text) => text.getBoundingClientRect().height));
  assert.ok(sizes.every((size) => size >= 10 && size <= 20), `${name}: texts of ${Math.min(...sizes)} to ${Math.max(...sizes)} pixels`);
}

/** Names of the accessibility rules that the page breaks. */
export async function violations(page) {
  await page.evaluate(axe);
  const result = await page.evaluate(() => window.axe.run());
  return result.violations.map((rule) => `${rule.id}: ${rule.nodes.map((node) => node.html).join(" | ").slice(0, 300)}`);
}

export async function ask(secret, count = 1, model = "llama-3.1-8b-instruct") {
  let status = 0;
  for (let index = 0; index < count; index += 1) {
    const body = JSON.stringify({ model, messages: [{ role: "user", content: "Hello" }] });
    const headers = { authorization: `Bearer ${secret}`, "content-type": "application/json" };
    const answer = await fetch(`${url}/v1/chat/completions`, { method: "POST", headers, body });
    await answer.text();
    status = answer.status;
  }
  return status;
}

/** Sends a streamed request; returns the events. */
export async function stream(secret, model = "llama-3.1-8b-instruct") {
  const body = JSON.stringify({ model, stream: true, messages: [{ role: "user", content: "Hello" }] });
  const headers = { authorization: `Bearer ${secret}`, "content-type": "application/json" };
  return (await fetch(`${url}/v1/chat/completions`, { method: "POST", headers, body })).text();
}

/** Sends a request; returns the provider that answered, and the request id. */
export async function route(secret, model) {
  const body = JSON.stringify({ model, messages: [{ role: "user", content: "Hello" }] });
  const headers = { authorization: `Bearer ${secret}`, "content-type": "application/json" };
  const answer = await fetch(`${url}/v1/chat/completions`, { method: "POST", headers, body });
  await answer.text();
  return [answer.headers.get("x-penstock-provider"), answer.headers.get("x-request-id")];
}

export async function choosePassword(page, link) {
  await page.goto(link);
  await page.locator("input[name=password]").fill(PASSWORD);
  await page.locator("input[name=again]").fill(PASSWORD);
  await page.getByRole("button", { name: "Save and sign in" }).click();
  await page.waitForURL(/\/(console|dashboard)\/$/);
}

/** Chooses a language by its button, and checks every page in it on a telephone, a tablet and a wide screen. */
export async function inspectLanguage(page, root, pages, [code, name], prefix) {
  await page.emulateMedia({ colorScheme: "light" });
  await page.goto(root + pages[0]);
  await page.getByRole("button", { name, exact: true }).click();
  for (const path of pages) {
    await page.goto(root + path);
    assert.equal(await page.locator("html").getAttribute("lang"), code, path);
    assert.deepEqual(await violations(page), [], path);
    for (const width of [360, 768, 1280]) {
      await page.setViewportSize({ width, height: 800 });
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
      assert.ok(overflow <= 0, `${path} is ${overflow} pixels too wide in ${name}, ${width} pixels`);
      await inspectLayout(page, `${path} in ${name}, ${width} pixels`);
      const file = `${folder}/${prefix}${path.replaceAll(/[^a-z0-9]+/g, "-") || "overview"}-${code}-${width}.png`;
      await page.screenshot({ path: file, fullPage: true });
    }
  }
  await page.getByRole("button", { name: "English", exact: true }).click();
}

/** Prints a page: number of its pages, and that each is A4. */
export async function print(page) {
  const pdf = await page.pdf({ preferCSSPageSize: true });
  const text = pdf.toString("latin1");
  const boxes = [...text.matchAll(/\/MediaBox\s*\[\s*0\s+0\s+([\d.]+)\s+([\d.]+)\s*\]/g)];
  assert.ok(boxes.length > 0);
  for (const [, width, height] of boxes) {
    assert.ok(Math.abs(width - 595.3) < 1.5 && Math.abs(height - 841.9) < 1.5, `${width} x ${height}`);
  }
  return { pdf, pages: text.match(/\/Type\s*\/Page(?![a-zA-Z])/g).length };
}

/** Opens every page, light and dark, wide and narrow: status, accessibility, width, screenshot. */
export async function inspectPages(page, root, pages, prefix) {
  for (const scheme of ["light", "dark"]) {
    for (const width of [1280, 390]) {
      await check(`every page, ${scheme}, ${width} pixels wide`, async () => {
        await page.emulateMedia({ colorScheme: scheme });
        await page.setViewportSize({ width, height: 800 });
        for (const name of pages) {
          const answer = await page.goto(root + name);
          assert.equal(answer.status(), 200, name);
          assert.deepEqual(await violations(page), [], name);
          const overflow = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
          assert.ok(overflow <= 0, `${name} is ${overflow} pixels too wide`);
          await inspectLayout(page, name);
          const file = `${folder}/${prefix}${name.replaceAll(/[^a-z0-9]+/g, "-") || "overview"}-${scheme}-${width}.png`;
          await page.screenshot({ path: file, fullPage: true });
        }
      });
    }
  }
}

/** Checks the plot of the grid intensity: its lines, bars and table, with the keyboard, and without a violation. */
export async function inspectIntensity(page, address, zones) {
  const plot = page.locator("figure.chart", { hasText: "Grid intensity" });
  // A charge is in the usage once it is written.
  for (let left = 50; left > 0; left -= 1) {
    await page.goto(address);
    if (await plot.locator("g path").count()) break;
    await page.waitForTimeout(200);
  }
  assert.equal(await plot.locator("polyline.line").count(), zones);
  assert.match(await plot.locator(".plot[role=img]").getAttribute("aria-label"), /g\/kWh to .* requests of batches$/);
  assert.ok(await plot.locator("g path").count() > 0, "bars");
  assert.match((await plot.locator(".hover title").first().textContent()), /g\/kWh:\n/);
  const line = await plot.locator("polyline").first().evaluate((shape) => getComputedStyle(shape).stroke);
  assert.notEqual(line, "none");
  assert.equal(await plot.locator("tbody").isVisible(), false);
  await plot.locator("summary").focus();
  await page.keyboard.press("Enter");
  await plot.locator("tbody").waitFor();
  assert.equal(await plot.locator("tbody tr").count(), 24);
  assert.deepEqual(await violations(page), []);
}
