# SPDX-License-Identifier: Apache-2.0
"""The options: their registration, descriptions and values."""

import importlib.metadata
import os
import shutil
import tempfile

from cinder.volume import configuration
import ddt
from oslo_config import cfg

from dmclone_driver import driver
from dmclone_driver.node.metadata import sizing
from dmclone_driver import opts
from tests.unit import base

REJECTED = [('dmclone_region_size', '-1'),
            ('dmclone_region_size', '1048577'),
            ('dmclone_hydration_window', '3'),
            ('dmclone_hydration_batch_size', '3'),
            ('dmclone_chain_limit', '0'),
            ('dmclone_copies_at_once', '0'),
            ('dmclone_bandwidth_in', 'much'),
            ('dmclone_bandwidth_out', '0%'),
            ('dmclone_copy_order', 'by name'),
            ('dmclone_hydration_min_rate', '-1'),
            ('dmclone_check_interval', '0'),
            ('dmclone_prepare_timeout', '4'),
            ('dmclone_source_timeout', '-2'),
            ('dmclone_metrics_port', '65536'),
            ('dmclone_metrics_address', 'not an address')]


@ddt.ddt
class OptionsTestCase(base.PlainTestCase):

    def test_registered(self):
        group = cfg.CONF[configuration.SHARED_CONF_GROUP]
        for option in opts.MOVE_OPTS:
            self.assertEqual(option.default, group[option.dest])
        self.assertEqual(21, len(opts.MOVE_OPTS))

    def test_of_this_driver(self):
        """All have the prefix, and a help text."""
        for option in opts.MOVE_OPTS:
            self.assertTrue(option.name.startswith('dmclone_'), option.name)
            self.assertTrue(option.help.endswith('.'), option.name)

    def test_driver_tells_them(self):
        known = {option.name: option
                 for option in driver.DMCloneVolumeDriver.get_driver_options()}
        for option in opts.MOVE_OPTS:
            self.assertIs(option, known[option.name])
        self.assertIn('volume_group', known)

    def test_sample_file(self):
        point, = importlib.metadata.entry_points(
            group='oslo.config.opts', name='dmclone_driver')
        found = dict(point.load()())
        for option in opts.MOVE_OPTS:
            self.assertIn(option, found[configuration.SHARED_CONF_GROUP])

    @ddt.data(*REJECTED)
    @ddt.unpack
    def test_rejected(self, name, value):
        option = next(each for each in opts.MOVE_OPTS
                      if each.name == name)
        self.assertRaises(ValueError, option.type, value)

    def test_earlier_names(self):
        """What an older configuration file has is still read."""
        path = os.path.join(tempfile.mkdtemp(), 'cinder.conf')
        self.addCleanup(shutil.rmtree, os.path.dirname(path))
        with open(path, 'w') as stream:
            stream.write('[dmclone]\ndmclone_hydration_threshold = 4096\n'
                         'dmclone_hydration_batch_size = 512\n')
        conf = cfg.ConfigOpts()
        conf.register_opts(opts.MOVE_OPTS, group='dmclone')
        conf(['--config-file', path])
        self.assertEqual((4096, 512), (
            conf.dmclone.dmclone_hydration_window,
            conf.dmclone.dmclone_hydration_batch_size))

    def test_defaults_fit_each_other(self):
        defaults = {option.name: option.default
                    for option in opts.MOVE_OPTS}
        # A request has to be answered, or undone, within this time.
        self.assertLess(defaults['dmclone_prepare_timeout'], 60)
        # By default guests wait, and get no errors.
        self.assertEqual(-1, defaults['dmclone_source_timeout'])
        self.assertFalse(defaults['dmclone_remote_attach'])
        self.assertFalse(defaults['dmclone_remote_attach_without_room'])
        # Metrics are off, and then only for programs of the node.
        self.assertEqual(0, defaults['dmclone_metrics_port'])
        self.assertEqual('127.0.0.1', defaults['dmclone_metrics_address'])
        self.assertFalse(defaults['dmclone_region_size'])
        largest = next(option for option in opts.MOVE_OPTS
                       if option.name == 'dmclone_region_size').type.max
        self.assertTrue(sizing.valid_region(largest))
