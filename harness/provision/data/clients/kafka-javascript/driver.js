// Transactional producers of @confluentinc/kafka-javascript, driven by lines on standard input; each line gets one line
// as its answer. The library contains librdkafka.
//
// docs/matrix.md describes the commands. The answer is "ok", "error NAME MESSAGE" or "unsupported MESSAGE".
'use strict'

const readline = require('readline')
const { KafkaConsumer, Producer } = require('@confluentinc/kafka-javascript')

const LIMIT_MS = 30000
const producers = {}

class Unsupported extends Error {}

function called(object, method, ...values) {
  return new Promise((resolve, reject) => {
    object[method](...values, (failure, value) => (failure ? reject(failure) : resolve(value)))
  })
}

function open(name, bootstrap, transactionalId, clientId, timeoutMs) {
  const producer = new Producer({
    'bootstrap.servers': bootstrap,
    'transactional.id': transactionalId,
    'client.id': clientId,
    'transaction.timeout.ms': Number(timeoutMs),
    dr_cb: true,
  })
  producer.on('event.error', () => {})
  producer.setPollInterval(20)
  producers[name] = { bootstrap, producer }
}

function send(producer, topic, partition, values) {
  return new Promise((resolve, reject) => {
    let waiting = values.length
    const limit = setTimeout(() => reject(new Error('a record is not acknowledged')), LIMIT_MS)
    const reported = failure => {
      waiting -= 1
      if (failure || waiting === 0) {
        clearTimeout(limit)
        producer.removeListener('delivery-report', reported)
        failure ? reject(failure) : resolve()
      }
    }
    producer.on('delivery-report', reported)
    for (const value of values) producer.produce(topic, Number(partition), Buffer.from(value))
  })
}

async function sendOffset({ bootstrap, producer }, group, topic, partition, offset, member) {
  if (member) throw new Unsupported('sendOffsetsToTransaction takes the consumer itself, which has left')
  // The metadata of a consumer that never subscribed names the group only.
  const consumer = new KafkaConsumer({ 'bootstrap.servers': bootstrap, 'group.id': group }, {})
  await called(consumer, 'connect', {})
  const positions = [{ topic, partition: Number(partition), offset: Number(offset) }]
  try {
    await called(producer, 'sendOffsetsToTransaction', positions, consumer, LIMIT_MS)
  } finally {
    await called(consumer, 'disconnect')
  }
}

async function carryOut([command, name, ...rest]) {
  if (command === 'open') return open(name, ...rest)
  if (command === 'join' || command === 'leave') {
    throw new Unsupported('sendOffsetsToTransaction takes the consumer itself, which has left')
  }
  const { producer } = producers[name]
  switch (command) {
    case 'init':
      await called(producer, 'connect', {})
      return called(producer, 'initTransactions', LIMIT_MS)
    case 'begin':
      return called(producer, 'beginTransaction')
    case 'commit':
      return called(producer, 'commitTransaction', LIMIT_MS)
    case 'abort':
      return called(producer, 'abortTransaction', LIMIT_MS)
    case 'send':
      return send(producer, rest[0], rest[1], rest.slice(2))
    case 'offset':
      return sendOffset(producers[name], ...rest)
    case 'close':
      return called(producer, 'disconnect')
  }
  throw new Unsupported(`there is no command ${command}`)
}

function answer(failure) {
  const message = String(failure.message).replaceAll('\n', ' ')
  if (failure instanceof Unsupported) return `unsupported ${message}`
  return `error ${failure.code === undefined ? 'error' : `LIBRDKAFKA_${failure.code}`} ${message}`
}

async function main() {
  console.log('ok')
  for await (const line of readline.createInterface({ input: process.stdin })) {
    try {
      await carryOut(line.split(' '))
      console.log('ok')
    } catch (failure) {
      console.log(answer(failure))
    }
  }
  process.exit(0)
}

main()
