// Cases of the sign-in by OpenID Connect in a browser. Each case ends the run if it fails.
import assert from "node:assert/strict";
import { chromium } from "playwright-core";
import { check, passed, problems, violations, watch } from "./shared.mjs";

const browser = await chromium.launch({ executablePath: process.env.PENSTOCK_CHROMIUM, args: ["--no-sandbox"] });
try {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
  const page = await context.newPage();
  watch(page);
  const root = `${new URL(process.env.PENSTOCK_HOLDER).origin}/dashboard/`;
  const signIn = async () => {
    await page.goto(`${root}sign-in`);
    assert.deepEqual(await violations(page), []);
    await page.getByRole("link", { name: "Sign in with Example ID" }).click();
    await page.getByRole("link", { name: "Continue as Eva" }).click();
    await page.waitForURL(root);
    assert.match(await page.locator("header").innerText(), /eva\s*\(account\)/);
  };

  // The provider is another site (localhost), so that the cookies' SameSite attributes count.
  await check("a person of the provider signs in, and the session's cookie is strict", async () => {
    await signIn();
    const cookies = await context.cookies(root);
    const session = cookies.find((cookie) => cookie.name === "penstock_dashboard");
    assert.deepEqual([session.sameSite, session.httpOnly], ["Strict", true]);
    assert.ok(!cookies.some((cookie) => cookie.name === "penstock_dashboard_openid"));
  });
  await check("a sign-out offers that of the provider, and comes back", async () => {
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByText("You are signed out here.").waitFor();
    assert.deepEqual(await violations(page), []);
    await page.getByRole("link", { name: "Sign out of Example ID too" }).click();
    await page.getByRole("link", { name: "Back" }).click();
    await page.waitForURL(`${root}sign-in`);
    await page.goto(root);
    assert.ok(page.url().endsWith("/dashboard/sign-in"));
  });
  await check("an answer that was not asked for is refused in words", async () => {
    await page.goto(`${root}sign-in/openid/return?code=x&state=y`);
    await page.getByText("This sign-in was not begun in this browser").waitFor();
    assert.deepEqual(await violations(page), []);
  });
  await check("the person signs in again", signIn);
  await check("no script failed and no policy was violated", async () => assert.deepEqual(problems, []));
  console.log(`openid: ${passed} passed, 0 failed`);
} finally {
  await browser.close();
}
