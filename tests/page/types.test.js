'use strict';
// TypeScript over the page's scripts: names that do not exist, wrong numbers of arguments, members of nothing.
//
// Preact is a minified file without types, so a copy of the page is checked in which declarations stand in its place.

const assert = require('node:assert/strict');
const { execFileSync } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { it } = require('node:test');

const PAGE = path.resolve(__dirname, '../../crates/server/page');

const OPTIONS = {
  allowJs: true,
  checkJs: true,
  noEmit: true,
  strict: true,
  noImplicitAny: false,
  // Fetched data have no declared shape, and neither have elements of forms.
  useUnknownInCatchVariables: false,
  noUnusedLocals: true,
  noFallthroughCasesInSwitch: true,
  target: 'es2022',
  module: 'esnext',
  moduleResolution: 'bundler',
  lib: ['es2023', 'dom', 'dom.iterable'],
  types: [],
};

/** What TypeScript says about the page with this change of a file, a line for each error. */
function check(change = () => {}) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'lycosa-types-'));
  try {
    fs.cpSync(PAGE, folder, { recursive: true });
    fs.rmSync(path.join(folder, 'vendor/preact.mjs'));
    fs.copyFileSync(path.join(__dirname, 'types/preact.d.mts'), path.join(folder, 'vendor/preact.d.mts'));
    change(folder);
    fs.writeFileSync(path.join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions: OPTIONS, include: ['**/*.js', '**/*.mts'] }));
    const tsc = require.resolve('typescript/lib/tsc.js');
    try {
      execFileSync(process.execPath, [tsc, '--project', folder, '--pretty', 'false'], { encoding: 'utf8', stdio: 'pipe' });
      return [];
    } catch (error) {
      return error.stdout.split('\n').filter(Boolean);
    }
  } finally {
    fs.rmSync(folder, { recursive: true, force: true });
  }
}

it('the page’s scripts fit together', () => {
  assert.deepEqual(check(), []);
});

it('the check of types sees a name that does not exist, and an argument too many', () => {
  const wrong = (folder) =>
    fs.appendFileSync(path.join(folder, 'format.js'), '\nexport const wrong = () => [absolute(1, 2), nothing];\n');
  const found = check(wrong);
  assert.ok(found.some((line) => line.includes('TS2304') && line.includes('nothing')), found.join('\n'));
  assert.ok(found.some((line) => line.includes('TS2554')), found.join('\n'));
});
