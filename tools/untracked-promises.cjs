/**
 * Loaded into every process of a test file: the async hook of node:test does not track promises.
 *
 * node:test tracks each promise until it is collected, to name the test in which an error was not caught. That takes half
 * of the CPU of tests with many promises, such as models and crash tests. Without it, such an error fails the file
 * instead of the test; `node --test FILE` names the test.
 */
'use strict';
const hooks = require('node:async_hooks');

const { createHook } = hooks;
hooks.createHook = (callbacks) => createHook({ trackPromises: false, ...callbacks });
